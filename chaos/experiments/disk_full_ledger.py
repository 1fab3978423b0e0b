"""The ledger's volume is full while a job runs: the coordinator says so, and loses nothing."""

from chaos.model import Action, Trigger
from chaos.schedule import Draw, Experiment
from chaos.workloads.small_disk import LIMITS_MIB

FILL = "fill-ledger"


def faults(draw: Draw) -> tuple[Action, ...]:
    """Fill the volume after a seeded save of main, beyond its lease."""
    return (
        Action(
            fault_id=FILL,
            kind="fill_disk",
            target="task of main",
            trigger=Trigger(checkpoints_at_least=draw.integer(FILL, "checkpoints", 1, 3)),
            deadline_s=90.0,
            params={"volume": "ledger", "hold_ms": draw.integer(FILL, "hold_ms", 5000, 7000)},
        ),
    )


EXPERIMENT = Experiment(
    name="disk_full_ledger",
    summary="the volume of the coordinator's ledger has no room left while a job runs",
    workload="small_disk",
    faults=faults,
    invariants=("refuses_when_full", "resume_newest_valid", "same_as_reference"),
    workers=2,
    order=115,
    quick=False,
    rare=True,
    limits_mib=LIMITS_MIB,
)
