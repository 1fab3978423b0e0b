"""As `line`, but for about twenty seconds: room for one fault after the other."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from chaos.model import JobRequest

SCRIPT = Path(__file__).resolve().parents[1] / "payloads" / "trial.py"
STEPS = 1000
EVERY = 20
LEASE_S = 3.0


@dataclass(frozen=True, slots=True)
class LongLine:
    """One task a job, without a framework, a save every EVERY steps and one on notice."""

    name: str = "long_line"

    def jobs(self, seed: int, count: int) -> Mapping[str, JobRequest]:
        """Return both jobs: alike but for their role."""
        del count
        options = {"--steps": STEPS, "--every": EVERY, "--seed": seed % 2**32}
        words = [str(word) for option in options.items() for word in option]
        request = JobRequest(
            name="long-line",
            command=("python3", SCRIPT.name, *words),
            files={SCRIPT.name: SCRIPT.read_bytes()},
            required_outputs=("metrics.json",),
            lease_s=LEASE_S,
            keep_checkpoints=STEPS // EVERY,
        )
        return {"main": replace(request, like="reference"), "reference": request}


WORKLOAD = LongLine()
