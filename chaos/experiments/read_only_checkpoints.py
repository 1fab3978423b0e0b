"""The checkpoint volume turns read-only under a job: it goes on once it can be written again."""

from chaos.model import Action, Trigger
from chaos.schedule import Draw, Experiment, expects
from chaos.workloads.small_disk import LIMITS_MIB

CLOSE = "close-checkpoints"
HOLD_MS = 10_000


def faults(draw: Draw) -> tuple[Action, ...]:
    """Remount the volume after a seeded save of main, until its attempt fails."""
    return (
        Action(
            fault_id=CLOSE,
            kind="read_only",
            target="holder of main",
            trigger=Trigger(checkpoints_at_least=draw.integer(CLOSE, "checkpoints", 1, 3)),
            deadline_s=90.0,
            params={
                "volume": "checkpoints",
                "hold_ms": HOLD_MS,
                "until": "TASK_ATTEMPT_FAILED",
                **expects("retry_task", "unknown", resumes=True),
            },
        ),
    )


EXPERIMENT = Experiment(
    name="read_only_checkpoints",
    summary="the checkpoint volume is remounted read-only while a job saves",
    workload="small_disk",
    faults=faults,
    invariants=("resume_newest_valid", "same_as_reference", "typed_as_injected"),
    workers=2,
    order=113,
    quick=False,
    limits_mib=LIMITS_MIB,
)
