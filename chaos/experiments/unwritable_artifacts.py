"""The artifact store may not be written to when a job hands in its result: none is lost."""

from chaos.model import Action, Trigger
from chaos.schedule import Draw, Experiment
from chaos.workloads.small_disk import STEPS

FORBID = "forbid-artifacts"


def faults(draw: Draw) -> tuple[Action, ...]:
    """Take the right to write shortly before the last step of main, beyond its end."""
    return (
        Action(
            fault_id=FORBID,
            kind="no_permission",
            target="task of main",
            trigger=Trigger(step_at_least=STEPS - draw.integer(FORBID, "before_end", 20, 40)),
            deadline_s=90.0,
            params={
                "volume": "artifacts",
                "hold_ms": draw.integer(FORBID, "hold_ms", 8000, 10_000),
            },
        ),
    )


EXPERIMENT = Experiment(
    name="unwritable_artifacts",
    summary="the artifact volume may not be written to while a job hands in its result",
    workload="small_disk",
    faults=faults,
    invariants=("refuses_when_full", "same_as_reference"),
    workers=2,
    order=117,
    quick=False,
)
