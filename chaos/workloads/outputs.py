"""Short jobs, each of which hands in two files of its own: something that can rot afterwards.

They are too large for the coordinator to keep them in its ledger for a while.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from chaos.model import JobRequest

SCRIPT = Path(__file__).resolve().parents[1] / "payloads" / "trial.py"
KINDS = ("flip_bits", "truncate", "delete", "zero", "swap", "roll_back")
STEPS = 20
LEASE_S = 3.0


@dataclass(frozen=True, slots=True)
class HandedIn:
    """A job of a second or two for each kind of damage; their roles are the kinds."""

    name: str = "outputs"

    def jobs(self, seed: int, count: int) -> Mapping[str, JobRequest]:
        """Return the jobs: alike but for their bytes."""
        del count
        return {kind: _request(seed + number) for number, kind in enumerate(KINDS)}


def _request(seed: int) -> JobRequest:
    options = {
        "--steps": STEPS,
        "--every": STEPS,
        "--seed": seed % 2**32,
        "--outputs": 2,
        "--output-kib": 256,
    }
    words = [str(word) for option in options.items() for word in option]
    return JobRequest(
        name="outputs",
        command=("python3", SCRIPT.name, *words),
        files={SCRIPT.name: SCRIPT.read_bytes()},
        required_outputs=("metrics.json", "output-0.bin", "output-1.bin"),
        lease_s=LEASE_S,
    )


WORKLOAD = HandedIn()
