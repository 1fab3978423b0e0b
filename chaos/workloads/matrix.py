"""One job for each kind of fault, and a reference; a save writes 16 MiB, so that it can be hit."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from chaos.model import JobRequest
from chaos.schedule import Draw

SCRIPT = Path(__file__).resolve().parents[1] / "payloads" / "trial.py"
IMPORT, EXIT, KILLED, TORN, ROTTEN = (
    "import_error",
    "system_exit",
    "killed",
    "killed_in_write",
    "corrupt_newest",
)
STEPS = 160
EVERY = 8
LEASE_S = 3.0


@dataclass(frozen=True, slots=True)
class Matrix:
    """Jobs of some seconds; those that must end well must end like the reference."""

    name: str = "matrix"

    def jobs(self, seed: int, count: int) -> Mapping[str, JobRequest]:
        """Return the reference and a job for each kind of fault."""
        del count
        reference = JobRequest(
            name="matrix",
            command=_command(seed),
            files={SCRIPT.name: SCRIPT.read_bytes()},
            required_outputs=("metrics.json",),
            lease_s=LEASE_S,
            keep_checkpoints=STEPS // EVERY,
        )
        like = replace(reference, like="reference")
        at = EVERY * 4 + Draw(seed).integer(EXIT, "ones", 1, EVERY - 1)
        broken = replace(reference, command=_command(seed, "--crash", "import"), expected="FAILED")
        return {
            KILLED: like,
            TORN: like,
            ROTTEN: like,
            EXIT: replace(like, command=_command(seed, "--crash", "exit", "--crash-at", str(at))),
            IMPORT: broken,
            "reference": reference,
        }


def _command(seed: int, *more: str) -> tuple[str, ...]:
    options = {"--steps": STEPS, "--every": EVERY, "--seed": seed % 2**32, "--ballast-mib": 16}
    words = [str(word) for option in options.items() for word in option]
    return ("python3", SCRIPT.name, *words, *more)


WORKLOAD = Matrix()
