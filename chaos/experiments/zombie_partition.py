"""One worker's path degrades, swallows everything beyond the lease, resets, opens: the zombie.

Another worker has the task by then; nothing that the zombie does may change anything.
"""

from chaos.model import Action, Trigger
from chaos.schedule import Draw, Experiment
from chaos.workloads.digits import LEASE_S

LATENCY, HOLE, RESET = "latency", "black-hole", "reset"
BEYOND_LEASE_MS = 500


def faults(draw: Draw) -> tuple[Action, ...]:
    """Latency, then a black hole until another worker claimed, then resets, on one path."""
    return (
        Action(
            fault_id=LATENCY,
            kind="latency",
            target="holder of main",
            trigger=Trigger(step_at_least=draw.integer(LATENCY, "step", 2, 8)),
            deadline_s=40.0,
            params={"latency_ms": draw.integer(LATENCY, "latency_ms", 200, 400)},
        ),
        Action(
            fault_id=HOLE,
            kind="black_hole",
            target="holder of main",
            trigger=Trigger(after=LATENCY),
            deadline_s=60.0,
            params={"min_hold_ms": int(LEASE_S * 1000) + BEYOND_LEASE_MS},
        ),
        Action(
            fault_id=RESET,
            kind="reset",
            target=f"target of {HOLE}",
            trigger=Trigger(after=HOLE),
            deadline_s=80.0,
            params={"hold_ms": draw.integer(RESET, "hold_ms", 300, 600)},
        ),
    )


EXPERIMENT = Experiment(
    name="zombie_partition",
    summary="a worker is cut off beyond its lease and comes back while another has its task",
    workload="digits",
    faults=faults,
    invariants=("resume_newest_valid", "same_as_reference"),
    order=30,
)
