"""The proxy between all workers and the coordinator dies and comes back: everybody is cut off."""

from chaos.model import Action, Trigger
from chaos.schedule import Draw, Experiment

FAULT_ID = "proxy"


def faults(draw: Draw) -> tuple[Action, ...]:
    """Kill Toxiproxy under main, for less than the lease or for more."""
    return (
        Action(
            fault_id=FAULT_ID,
            kind="toxiproxy_down",
            target="toxiproxy",
            trigger=Trigger(step_at_least=draw.integer(FAULT_ID, "step", 10, 60)),
            deadline_s=120.0,
            params={"hold_ms": draw.choice(FAULT_ID, "hold_ms", (300, 1500, 4500))},
        ),
    )


EXPERIMENT = Experiment(
    name="toxiproxy_down",
    summary="the one path to the coordinator dies under a job, and comes back",
    workload="in_turn",
    faults=faults,
    invariants=("resume_newest_valid", "same_as_reference"),
    order=220,
    quick=False,
)
