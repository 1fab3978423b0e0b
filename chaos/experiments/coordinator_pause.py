"""The coordinator freezes beyond every lease: nobody could be heard, so nobody loses anything."""

from chaos.model import Action, Trigger
from chaos.schedule import Draw, Experiment
from chaos.workloads.line import LEASE_S

PAUSE = "pause"
LEASES = 2


def faults(draw: Draw) -> tuple[Action, ...]:
    """Freeze the coordinator at a seeded step of main."""
    return (
        Action(
            fault_id=PAUSE,
            kind="pause",
            target="coordinator",
            trigger=Trigger(step_at_least=draw.integer(PAUSE, "step", 25, 60)),
            deadline_s=60.0,
            params={"min_hold_ms": int(LEASES * LEASE_S * 1000), "costs_nothing": True},
        ),
    )


EXPERIMENT = Experiment(
    name="coordinator_pause",
    summary="the coordinator is frozen for two leases while its workers go on",
    workload="line",
    faults=faults,
    invariants=("costs_nothing", "same_as_reference"),
    order=120,
    quick=False,
)
