"""Each fsync of the coordinator takes half a second: heartbeats are late, and no lease is lost."""

from chaos.model import Action, Trigger
from chaos.schedule import Draw, Experiment

NAME = "slow-disk"
DELAY_MS = 500
HOLD_MS = 12_000


def faults(draw: Draw) -> tuple[Action, ...]:
    """Slow the disk down from a seeded step of main on, for some leases."""
    return (
        Action(
            fault_id=NAME,
            kind="slow_fsync",
            target="coordinator",
            trigger=Trigger(step_at_least=draw.integer(NAME, "step", 10, 40)),
            deadline_s=60.0,
            params={"delay_ms": DELAY_MS, "hold_ms": HOLD_MS, "costs_nothing": True},
        ),
    )


EXPERIMENT = Experiment(
    name="slow_disk",
    summary="every fsync of the coordinator takes half a second under heartbeats",
    workload="line",
    faults=faults,
    invariants=("costs_nothing", "same_as_reference"),
    order=121,
    quick=False,
)
