"""Somebody uploads other bytes under the keys of accepted outputs; they stay as they were."""

from chaos.model import Action, Trigger
from chaos.schedule import Draw, Experiment
from chaos.workloads.outputs import KINDS

DEADLINE_S = 60.0


def faults(draw: Draw) -> tuple[Action, ...]:
    """Overwrite an output of each job once it has ended."""
    return tuple(
        Action(
            fault_id=f"overwrite-{number}",
            kind="overwrite",
            target=f"artifacts of {role}",
            trigger=Trigger(role, event="JOB_SUCCEEDED"),
            deadline_s=DEADLINE_S,
            params={"choice": draw.integer(f"overwrite-{number}", "choice", 0, 2**31 - 1)},
        )
        for number, role in enumerate(KINDS, start=1)
    )


EXPERIMENT = Experiment(
    name="overwritten_artifact",
    summary="other bytes are uploaded under the keys of accepted outputs",
    workload="outputs",
    faults=faults,
    invariants=("accepted_bytes",),
    workers=2,
    order=117,
    quick=False,
)
