"""A worker uploads on a slow link, in slices, with jitter, after its path was closed for a while.

The upload takes longer than the lease: heartbeats beside it must keep it.
"""

from chaos.model import Action, JsonMap, Trigger
from chaos.schedule import Draw, Experiment
from chaos.workloads.in_turn import SAVES

DOWN, JITTER, SLICES, SLOW = "down", "jitter", "slices", "slow"
DEADLINE_S = 150.0
COMMITTED = "TASK_COMMIT_ACCEPTED"


def faults(draw: Draw) -> tuple[Action, ...]:
    """Close the holder's path, then make it jitter and cut answers up, then make it slow."""
    jitter_ms = draw.integer(JITTER, "jitter_ms", 50, 100)
    params: dict[str, JsonMap] = {
        DOWN: {"hold_ms": draw.integer(DOWN, "hold_ms", 300, 1500)},
        JITTER: {"latency_ms": 200, "jitter_ms": jitter_ms, "stream": "both"},
        SLICES: {"slice_bytes": 20, "pause_us": draw.integer(SLICES, "pause_us", 20_000, 50_000)},
        SLOW: {
            "kb_per_s": draw.integer(SLOW, "kb_per_s", 150, 190),
            "until": COMMITTED,
            "ahead_of": COMMITTED,
        },
    }
    kinds = {DOWN: "down", JITTER: "latency", SLICES: "slicer", SLOW: "bandwidth"}
    triggers = {
        DOWN: Trigger(step_at_least=draw.integer(DOWN, "step", 5, 20)),
        JITTER: Trigger(after=DOWN),
        SLICES: Trigger(after=JITTER),
        SLOW: Trigger(checkpoints_at_least=SAVES - 3),
    }
    return tuple(
        Action(name, kind, "holder of main", triggers[name], DEADLINE_S, params[name])
        for name, kind in kinds.items()
    )


EXPERIMENT = Experiment(
    name="slow_link",
    summary="a path that is closed, jitters, cuts answers up, and is slow while 1 MiB goes up",
    workload="in_turn",
    faults=faults,
    invariants=("resume_newest_valid", "same_as_reference"),
    order=230,
    quick=False,
)
