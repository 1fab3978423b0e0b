"""One job for each kind of damage to its checkpoints, and a reference; each save is 2 MiB."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from chaos.model import JobRequest

SCRIPT = Path(__file__).resolve().parents[1] / "payloads" / "trial.py"
KINDS = (
    "flip_bits",
    "truncate",
    "delete",
    "zero",
    "swap",
    "roll_back",
    "garbage_manifest",
    "foreign_file",
)
STEPS = 96
EVERY = 8
LEASE_S = 3.0


@dataclass(frozen=True, slots=True)
class Damaged:
    """Jobs of some seconds, all alike; their roles are the kinds of damage."""

    name: str = "damaged"

    def jobs(self, seed: int, count: int) -> Mapping[str, JobRequest]:
        """Return the reference and a job for each kind."""
        del count
        options = {
            "--steps": STEPS,
            "--every": EVERY,
            "--seed": seed % 2**32,
            "--ballast-mib": 2,
        }
        words = [str(word) for option in options.items() for word in option]
        reference = JobRequest(
            name="damaged",
            command=("python3", SCRIPT.name, *words),
            files={SCRIPT.name: SCRIPT.read_bytes()},
            required_outputs=("metrics.json",),
            lease_s=LEASE_S,
            keep_checkpoints=STEPS // EVERY,
        )
        like = replace(reference, like="reference")
        return {"reference": reference, **dict.fromkeys(KINDS, like)}


WORKLOAD = Damaged()
