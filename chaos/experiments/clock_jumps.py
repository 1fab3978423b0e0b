"""Wall clocks of a worker and of the coordinator jump by hours and days: nothing counts on them."""

from chaos.model import Action, Trigger
from chaos.schedule import Draw, Experiment

DEADLINE_S = 90.0
HOLD_MS = 2500
HOUR_S, DAY_S = 3600, 86_400
JUMPS = (
    ("worker-ahead", "holder of main", HOUR_S),
    ("coordinator-back", "coordinator", -HOUR_S),
    ("coordinator-ahead", "coordinator", DAY_S),
    ("worker-skew", "holder of main", -3),
)


def faults(draw: Draw) -> tuple[Action, ...]:
    """One after the other."""
    found: list[Action] = []
    for fault_id, target, offset_s in JUMPS:
        first = Trigger(step_at_least=draw.integer(fault_id, "step", 10, 30))
        trigger = Trigger(after=found[-1].fault_id) if found else first
        params = {"offset_s": offset_s, "hold_ms": HOLD_MS, "costs_nothing": True}
        found.append(Action(fault_id, "clock_jump", target, trigger, DEADLINE_S, params))
    return tuple(found)


EXPERIMENT = Experiment(
    name="clock_jumps",
    summary="the wall clocks of a worker and of the coordinator jump, forwards and backwards",
    workload="long_line",
    faults=faults,
    invariants=("costs_nothing", "same_as_reference"),
    order=160,
    quick=False,
    variants=("clock",),
)
