"""One job for each harm that a job's own code can do, and a reference.

Some end their first attempt, some only make it hard for their worker.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from chaos.model import JobRequest
from chaos.schedule import Draw

PAYLOADS = Path(__file__).resolve().parents[1] / "payloads"
SCRIPT, TRIAL = PAYLOADS / "app_faults.py", PAYLOADS / "trial.py"
FINAL = ("import_error", "exception", "nan_loss")
"""Tried again, these would end in the same way: the job fails at once."""
PASSING = ("system_exit", "segfault", "self_exit_137", "hang")
AMOUNTS = {"hold_gil": 30.0, "children": 200.0, "flood": float(32 << 20)}
"""Those that do not end the attempt: seconds, processes, bytes."""
STEPS = 120
EVERY = 10
LEASE_S = 3.0
NO_PROGRESS_S = 4.0


@dataclass(frozen=True, slots=True)
class AppFaults:
    """Jobs of some seconds; those that must end well must end like the reference."""

    name: str = "app_faults"

    def jobs(self, seed: int, count: int) -> Mapping[str, JobRequest]:
        """Return the reference and a job for each mode, each named like its mode."""
        del count
        reference = JobRequest(
            name="app-fault",
            command=_command(seed, "none", at=0),
            files={path.name: path.read_bytes() for path in (SCRIPT, TRIAL)},
            required_outputs=("metrics.json",),
            lease_s=LEASE_S,
            keep_checkpoints=STEPS // EVERY,
        )
        jobs = {"reference": reference}
        for mode in (*FINAL, *PASSING, *AMOUNTS):
            command = _command(seed, mode, at=_step(seed, mode))
            jobs[mode] = replace(reference, command=command, like="reference")
        for mode in FINAL:
            jobs[mode] = replace(jobs[mode], like=None, expected="FAILED")
        jobs["hang"] = replace(jobs["hang"], no_progress_s=NO_PROGRESS_S)
        return jobs


def _step(seed: int, mode: str) -> int:
    """Return the step at which it happens: never one that is saved."""
    draw = Draw(seed)
    return EVERY * draw.integer(mode, "tens", 3, 8) + draw.integer(mode, "ones", 1, EVERY - 1)


def _command(seed: int, mode: str, at: int) -> tuple[str, ...]:
    options = {
        "--mode": mode,
        "--at": at,
        "--amount": AMOUNTS.get(mode, 0.0),
        "--steps": STEPS,
        "--every": EVERY,
        "--seed": seed % 2**32,
    }
    return ("python3", SCRIPT.name, *(str(word) for pair in options.items() for word in pair))


WORKLOAD = AppFaults()
