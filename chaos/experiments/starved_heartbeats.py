"""A worker gets a fifth of one core for longer than its lease: slow, but heard in time."""

from chaos.model import Action, Trigger
from chaos.schedule import Draw, Experiment

STARVE = "starve"
HOLD_MS = 6000
CORE_PERCENT = 20


def faults(draw: Draw) -> tuple[Action, ...]:
    """Starve the holder of main from a seeded step on."""
    return (
        Action(
            fault_id=STARVE,
            kind="cpu_starvation",
            target="holder of main",
            trigger=Trigger(step_at_least=draw.integer(STARVE, "step", 20, 60)),
            deadline_s=60.0,
            params={"core_percent": CORE_PERCENT, "hold_ms": HOLD_MS, "costs_nothing": True},
        ),
    )


EXPERIMENT = Experiment(
    name="starved_heartbeats",
    summary="a worker gets a fifth of one core for two leases and keeps its task",
    workload="line",
    faults=faults,
    invariants=("costs_nothing", "same_as_reference"),
    order=170,
    quick=False,
)
