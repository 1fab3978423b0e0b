"""Digits with a save at every step, as `main` and as `reference`.

The state is so large that writing it outlasts the way of a kill through the engine.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from chaos.model import JobRequest

SCRIPT = Path(__file__).resolve().parents[1] / "payloads" / "digits.py"
WIDTH = 2048
FIRST_STEP = 8
STEPS_PER_KILL = 8
LEASE_S = 3.0


@dataclass(frozen=True, slots=True)
class SmallSteps:
    """A checkpoint of about 50 MB at every step; as many steps as `count` kills have room in."""

    name: str = "small_steps"

    def jobs(self, seed: int, count: int) -> Mapping[str, JobRequest]:
        """Return both jobs: alike but for their role."""
        options = {
            "--steps": FIRST_STEP + STEPS_PER_KILL * (count + 3),
            "--every": 1,
            "--width": WIDTH,
            "--batch": 8,
            "--seed": seed,
            "--threads": 1,
        }
        words = [str(word) for option in options.items() for word in option]
        request = JobRequest(
            name="small-steps",
            command=("python3", SCRIPT.name, *words),
            files={SCRIPT.name: SCRIPT.read_bytes()},
            required_outputs=("metrics.json",),
            lease_s=LEASE_S,
        )
        return {"main": replace(request, like="reference"), "reference": request}


WORKLOAD = SmallSteps()
