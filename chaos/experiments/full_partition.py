"""A worker is in no network for longer than its lease, and comes back to a task that moved on."""

from chaos.model import Action, Trigger
from chaos.schedule import Draw, Experiment
from chaos.workloads.in_turn import LEASE_S

FAULT_ID = "partition"


def faults(draw: Draw) -> tuple[Action, ...]:
    """Take the holder of main out of its network until another worker has claimed, and longer."""
    beyond_ms = draw.integer(FAULT_ID, "beyond_ms", 500, 1500)
    return (
        Action(
            fault_id=FAULT_ID,
            kind="partition",
            target="holder of main",
            trigger=Trigger(step_at_least=draw.integer(FAULT_ID, "step", 10, 40)),
            deadline_s=120.0,
            params={"min_hold_ms": int(LEASE_S * 1000) + beyond_ms},
        ),
    )


EXPERIMENT = Experiment(
    name="full_partition",
    summary="a worker is out of its network beyond its lease, and comes back",
    workload="in_turn",
    faults=faults,
    invariants=("resume_newest_valid", "same_as_reference"),
    order=250,
    quick=False,
)
