"""A job that asks for much memory at one step of its first attempt, and the same one modestly."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from chaos.model import JobRequest

PAYLOADS = Path(__file__).resolve().parents[1] / "payloads"
SCRIPT, TRIAL = PAYLOADS / "app_faults.py", PAYLOADS / "trial.py"
STEPS = 400
EVERY = 20
ASKS_AT = 221
ASKS_MIB = 500
SAMPLES = 4000
LEASE_S = 3.0


@dataclass(frozen=True, slots=True)
class Hungry:
    """`main` is like `reference` but for the memory, of which nothing is kept."""

    name: str = "hungry"

    def jobs(self, seed: int, count: int) -> Mapping[str, JobRequest]:
        """Return both jobs."""
        del count
        reference = JobRequest(
            name="hungry",
            command=_command(seed, "none", 0),
            files={path.name: path.read_bytes() for path in (SCRIPT, TRIAL)},
            required_outputs=("metrics.json",),
            lease_s=LEASE_S,
            keep_checkpoints=STEPS // EVERY,
        )
        main = replace(reference, command=_command(seed, "allocate", ASKS_AT), like="reference")
        return {"main": main, "reference": reference}


def _command(seed: int, mode: str, at: int) -> tuple[str, ...]:
    options = {
        "--mode": mode,
        "--at": at,
        "--amount": ASKS_MIB,
        "--steps": STEPS,
        "--every": EVERY,
        "--samples": SAMPLES,
        "--seed": seed % 2**32,
    }
    return ("python3", SCRIPT.name, *(str(word) for pair in options.items() for word in pair))


WORKLOAD = Hungry()
