"""Digits, twice: the same training job as `main`, which faults hit, and as `reference`.

The width makes the state large, so that writing it takes a time that a fault can hit; the batch is
small, so that a step does not.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from chaos.model import JobRequest

SCRIPT = Path(__file__).resolve().parents[1] / "payloads" / "digits.py"
STEPS = 140
EVERY = 10
WIDTH = 2048
BATCH = 8
LEASE_S = 3.0


@dataclass(frozen=True, slots=True)
class Digits:
    """One task a job, on one thread, with a checkpoint of about 50 MB every EVERY steps."""

    name: str = "digits"

    def jobs(self, seed: int, count: int) -> Mapping[str, JobRequest]:
        """Return both jobs: alike but for their role."""
        del count
        options = {
            "--steps": STEPS,
            "--every": EVERY,
            "--width": WIDTH,
            "--batch": BATCH,
            "--seed": seed,
            "--threads": 1,
        }
        words = [str(word) for option in options.items() for word in option]
        request = JobRequest(
            name="digits",
            command=("python3", SCRIPT.name, *words),
            files={SCRIPT.name: SCRIPT.read_bytes()},
            required_outputs=("metrics.json",),
            lease_s=LEASE_S,
        )
        return {"main": replace(request, like="reference"), "reference": request}


WORKLOAD = Digits()
