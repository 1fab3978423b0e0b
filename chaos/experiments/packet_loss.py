"""A worker loses 30 % of its packets, both ways, until its result is committed."""

from chaos.model import Action, Trigger
from chaos.schedule import Draw, Experiment

FAULT_ID = "loss"
COMMITTED = "TASK_COMMIT_ACCEPTED"


def faults(draw: Draw) -> tuple[Action, ...]:
    """Lose packets of the holder of main from a seeded step on."""
    return (
        Action(
            fault_id=FAULT_ID,
            kind="loss",
            target="holder of main",
            trigger=Trigger(step_at_least=draw.integer(FAULT_ID, "step", 5, 40)),
            deadline_s=150.0,
            params={"percent": 30, "until": COMMITTED, "most_ms": 60_000, "ahead_of": COMMITTED},
        ),
    )


EXPERIMENT = Experiment(
    name="packet_loss",
    summary="30 % of a worker's packets are lost until its result is committed",
    workload="in_turn",
    faults=faults,
    invariants=("resume_newest_valid", "same_as_reference"),
    order=240,
    quick=False,
    rare=True,
)
