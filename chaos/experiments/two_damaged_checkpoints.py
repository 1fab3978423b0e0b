"""The newest two checkpoints are damaged at once: the third one is resumed from."""

from chaos.model import Action, Comeback, Trigger
from chaos.schedule import Draw, Experiment, expects
from chaos.workloads.damaged import KINDS

DEADLINE_S = 150.0
DEPTH = 2


def faults(draw: Draw) -> tuple[Action, ...]:
    """Damage the newest two checkpoints of each job in its own way, and kill the holder."""
    return tuple(_damage(draw, kind) for kind in KINDS)


def _damage(draw: Draw, kind: str) -> Action:
    return Action(
        fault_id=f"two-{kind.replace('_', '-')}",
        kind=kind,
        target=f"holder of {kind}",
        trigger=Trigger(kind, checkpoints_at_least=DEPTH + 2),
        deadline_s=DEADLINE_S,
        params={
            "depth": DEPTH,
            "choice": draw.integer(f"two-{kind}", "choice", 0, 2**31 - 1),
            **expects("retry_task", "node_loss", "worker_crash", resumes=True),
        },
        comeback=Comeback.AT_ONCE,
    )


EXPERIMENT = Experiment(
    name="two_damaged_checkpoints",
    summary="the newest two checkpoints are damaged in every way as their worker dies",
    workload="damaged",
    faults=faults,
    invariants=(
        "resume_newest_valid",
        "rejection_recorded",
        "same_as_reference",
        "typed_as_injected",
    ),
    workers=4,
    order=111,
    quick=False,
    rare=True,
)
