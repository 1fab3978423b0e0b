"""A line is fitted, twice: as `main`, which faults hit, and as `reference`; a small state."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from chaos.model import JobRequest

SCRIPT = Path(__file__).resolve().parents[1] / "payloads" / "trial.py"
STEPS = 400
EVERY = 20
LEASE_S = 3.0


@dataclass(frozen=True, slots=True)
class Line:
    """One task a job, without a framework, a save every EVERY steps and one on notice."""

    name: str = "line"

    def jobs(self, seed: int, count: int) -> Mapping[str, JobRequest]:
        """Return both jobs: alike but for their role."""
        del count
        options = {"--steps": STEPS, "--every": EVERY, "--seed": seed % 2**32}
        words = [str(word) for option in options.items() for word in option]
        request = JobRequest(
            name="line",
            command=("python3", SCRIPT.name, *words),
            files={SCRIPT.name: SCRIPT.read_bytes()},
            required_outputs=("metrics.json",),
            lease_s=LEASE_S,
            keep_checkpoints=STEPS // EVERY,
        )
        return {"main": replace(request, like="reference"), "reference": request}


WORKLOAD = Line()
