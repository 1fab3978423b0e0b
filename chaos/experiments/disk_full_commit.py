"""The artifact volume is full when a job hands in its result: it is taken later, none is lost."""

from chaos.model import Action, Trigger
from chaos.schedule import Draw, Experiment
from chaos.workloads.small_disk import LIMITS_MIB, STEPS

FILL = "fill-artifacts"


def faults(draw: Draw) -> tuple[Action, ...]:
    """Fill the volume shortly before the last step of main, beyond its end and its lease."""
    return (
        Action(
            fault_id=FILL,
            kind="fill_disk",
            target="task of main",
            trigger=Trigger(step_at_least=STEPS - draw.integer(FILL, "before_end", 20, 40)),
            deadline_s=90.0,
            params={"volume": "artifacts", "hold_ms": draw.integer(FILL, "hold_ms", 8000, 10_000)},
        ),
    )


EXPERIMENT = Experiment(
    name="disk_full_commit",
    summary="the artifact volume has no room left while a job hands in its result",
    workload="small_disk",
    faults=faults,
    invariants=("refuses_when_full", "same_as_reference"),
    workers=2,
    order=114,
    quick=False,
    rare=True,
    limits_mib=LIMITS_MIB,
)
