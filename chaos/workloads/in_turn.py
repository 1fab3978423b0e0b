"""A job that nobody disturbs, and after it another one like it, `main`, which faults hit.

So that what hits all workers at once spares the reference. It hands in a file of its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from chaos.model import JobRequest

SCRIPT = Path(__file__).resolve().parents[1] / "payloads" / "trial.py"
STEPS, EVERY = 320, 32
SAVES = STEPS // EVERY
OUTPUT_KIB = 1024
LEASE_S = 3.0


@dataclass(frozen=True, slots=True)
class InTurn:
    """Two jobs of some seconds, one after the other."""

    name: str = "in_turn"

    def jobs(self, seed: int, count: int) -> Mapping[str, JobRequest]:
        """Return both jobs: alike but for their role."""
        del count
        options = {
            "--steps": STEPS,
            "--every": EVERY,
            "--seed": seed % 2**32,
            "--outputs": 1,
            "--output-kib": OUTPUT_KIB,
        }
        reference = JobRequest(
            name="in-turn",
            command=("python3", SCRIPT.name, *(str(w) for pair in options.items() for w in pair)),
            files={SCRIPT.name: SCRIPT.read_bytes()},
            required_outputs=("metrics.json", "output-0.bin"),
            lease_s=LEASE_S,
            keep_checkpoints=SAVES,
        )
        main = replace(reference, like="reference", starts_after="reference")
        return {"reference": reference, "main": main}


WORKLOAD = InTurn()
