"""The newest checkpoint is damaged in every way there is: the one before it is resumed from."""

from chaos.model import Action, Comeback, Trigger
from chaos.schedule import Draw, Experiment, expects
from chaos.workloads.damaged import KINDS

DEADLINE_S = 150.0


def faults(draw: Draw) -> tuple[Action, ...]:
    """Damage the newest checkpoint of each job in its own way, and kill the holder."""
    return tuple(_damage(draw, kind) for kind in KINDS)


def _damage(draw: Draw, kind: str) -> Action:
    return Action(
        fault_id=kind.replace("_", "-"),
        kind=kind,
        target=f"holder of {kind}",
        trigger=Trigger(kind, checkpoints_at_least=draw.integer(kind, "checkpoints", 2, 4)),
        deadline_s=DEADLINE_S,
        params={
            "choice": draw.integer(kind, "choice", 0, 2**31 - 1),
            **expects("retry_task", "node_loss", "worker_crash", resumes=True),
        },
        comeback=Comeback.AT_ONCE,
    )


EXPERIMENT = Experiment(
    name="damaged_checkpoint",
    summary="the newest checkpoint is cut, zeroed, swapped, rolled back, ... as its worker dies",
    workload="damaged",
    faults=faults,
    invariants=(
        "resume_newest_valid",
        "rejection_recorded",
        "same_as_reference",
        "typed_as_injected",
    ),
    workers=4,
    order=110,
    quick=False,
)
