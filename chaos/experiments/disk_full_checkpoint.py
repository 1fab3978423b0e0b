"""The checkpoint volume is full at a save: earlier ones stay, and the job goes on after it."""

from chaos.model import Action, Trigger
from chaos.schedule import Draw, Experiment, expects
from chaos.workloads.small_disk import LIMITS_MIB

FILL = "fill-checkpoints"
HOLD_MS = 10_000


def faults(draw: Draw) -> tuple[Action, ...]:
    """Fill the volume after a seeded save of main, until its attempt fails."""
    return (
        Action(
            fault_id=FILL,
            kind="fill_disk",
            target="holder of main",
            trigger=Trigger(checkpoints_at_least=draw.integer(FILL, "checkpoints", 1, 3)),
            deadline_s=90.0,
            params={
                "volume": "checkpoints",
                "hold_ms": HOLD_MS,
                "until": "TASK_ATTEMPT_FAILED",
                **expects("retry_task", "resource_exhausted", resumes=True),
            },
        ),
    )


EXPERIMENT = Experiment(
    name="disk_full_checkpoint",
    summary="the checkpoint volume has no room left while a job saves",
    workload="small_disk",
    faults=faults,
    invariants=("resume_newest_valid", "same_as_reference", "typed_as_injected"),
    workers=2,
    order=112,
    quick=False,
    limits_mib=LIMITS_MIB,
)
