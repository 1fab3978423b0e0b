"""A job that saves and hands in files on volumes of limited size, after one that nobody disturbs.

They share the volumes, so that the second one begins when the first has ended.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from chaos.model import JobRequest

SCRIPT = Path(__file__).resolve().parents[1] / "payloads" / "trial.py"
STEPS = 120
EVERY = 8
LEASE_S = 3.0
LIMITS_MIB = {"checkpoints": 160, "artifacts": 48, "ledger": 32}


@dataclass(frozen=True, slots=True)
class SmallDisk:
    """A save of 4 MiB every EVERY steps, and 4 MiB to hand in at the end."""

    name: str = "small_disk"

    def jobs(self, seed: int, count: int) -> Mapping[str, JobRequest]:
        """Return both jobs: alike but for their role."""
        del count
        options = {
            "--steps": STEPS,
            "--every": EVERY,
            "--seed": seed % 2**32,
            "--ballast-mib": 4,
            "--outputs": 1,
            "--output-kib": 4096,
        }
        words = [str(word) for option in options.items() for word in option]
        reference = JobRequest(
            name="small-disk",
            command=("python3", SCRIPT.name, *words),
            files={SCRIPT.name: SCRIPT.read_bytes()},
            required_outputs=("metrics.json", "output-0.bin"),
            lease_s=LEASE_S,
            max_task_attempts=6,
            keep_checkpoints=STEPS // EVERY,
        )
        main = replace(reference, like="reference", starts_after="reference")
        return {"reference": reference, "main": main}


WORKLOAD = SmallDisk()
