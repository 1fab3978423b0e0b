"""One short job after the other, all alike, and a first one that nobody disturbs.

Their lease is long, so that only the end of a session can tell in time of a worker that died.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from chaos.model import JobRequest

SCRIPT = Path(__file__).resolve().parents[1] / "payloads" / "trial.py"
STEPS = 160
EVERY = 20
LEASE_S = 60.0


def role(number: int) -> str:
    """Return the role of a cycle, counted from 1."""
    return f"cycle-{number:03d}"


@dataclass(frozen=True, slots=True)
class Cycles:
    """`count` jobs of some seconds, each submitted when the one before it has ended."""

    name: str = "cycles"

    def jobs(self, seed: int, count: int) -> Mapping[str, JobRequest]:
        """Return the reference and the cycles."""
        options = {"--steps": STEPS, "--every": EVERY, "--seed": seed % 2**32}
        words = [str(word) for option in options.items() for word in option]
        reference = JobRequest(
            name="cycle",
            command=("python3", SCRIPT.name, *words),
            files={SCRIPT.name: SCRIPT.read_bytes()},
            required_outputs=("metrics.json",),
            lease_s=LEASE_S,
            keep_checkpoints=STEPS // EVERY,
        )
        jobs, last = {"reference": reference}, "reference"
        for number in range(1, count + 1):
            jobs[role(number)] = replace(reference, like="reference", starts_after=last)
            last = role(number)
        return jobs


WORKLOAD = Cycles()
