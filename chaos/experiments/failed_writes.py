"""The disk fails under the training: an fsync with EIO, then writes that are lost.

A save that failed must never count; once it is over the worker dies, and the next attempt goes on
from what is whole.
"""

from chaos.model import Action, Comeback, JsonMap, Trigger
from chaos.schedule import Draw, Experiment

HOLD_MS = 20_000
BELOW = "/var/lib/flashruntime/checkpoints/"
FAULTS: tuple[tuple[str, str, JsonMap], ...] = (
    ("eio", "io_error", {"call": "fsync", "errno": "EIO"}),
    ("lost", "lost_write", {"call": "write,pwrite64"}),
)
FIRST_STEP, LATER = 15, 40


def faults(draw: Draw) -> tuple[Action, ...]:
    """Disturb a save of main, in two ways, and kill its worker after each."""
    found: list[Action] = []
    for number, (name, kind, params) in enumerate(FAULTS):
        before = found[-1].fault_id if found else None
        step = FIRST_STEP + LATER * number + draw.integer(name, "step", 0, 20)
        found += [
            Action(
                fault_id=name,
                kind=kind,
                target="holder of main",
                trigger=Trigger(step_at_least=step, after=before),
                deadline_s=90.0,
                params={**params, "below": BELOW, "hold_ms": HOLD_MS},
                comeback=Comeback.AT_ONCE,
            ),
            Action(
                fault_id=f"kill-after-{name}",
                kind="kill",
                target="holder of main",
                trigger=Trigger(after=name),
                deadline_s=100.0,
                comeback=Comeback.RECLAIMED,
            ),
        ]
    return tuple(found)


EXPERIMENT = Experiment(
    name="failed_writes",
    summary="saves fail with EIO, or are lost by a disk that lies; then the worker dies",
    workload="digits",
    faults=faults,
    invariants=("resume_newest_valid", "same_as_reference"),
    order=118,
    quick=False,
)
