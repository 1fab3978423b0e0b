"""16 trials on 4 workers under every kind of fault at once: how much of the work was of use?

Half of the trials crash by themselves, workers die, a checkpoint rots, and one worker's path is
slow, then closed beyond the lease, reset and open again.
"""

from chaos.model import Action, Comeback, JsonMap, Trigger
from chaos.schedule import Draw, Experiment, expects
from chaos.workloads.fan_out import LEASE_S, TRIALS, way

DEADLINE_S = 240.0
BEYOND_LEASE_MS = 500
KILLED, CUT_OFF, ROTTEN = "storm/1", "storm/5", "storm/11"
LOST = expects("retry_task", "node_loss", "worker_crash", resumes=True)
CRASHES: dict[str, JsonMap] = {
    "exit": {
        "ended_by": "exit",
        "exit_code": 3,
        **expects("retry_task", "unknown", "worker_crash", resumes=True),
    },
    "kill": {
        "ended_by": "signal",
        "signal": 9,
        **expects("retry_task", "worker_crash", resumes=True),
    },
}


def faults(draw: Draw) -> tuple[Action, ...]:
    """Expect the armed trials to crash, and hurt three of the others from outside."""
    armed = [trial for trial in range(TRIALS) if way(trial) != "none"]
    return (*(_crash(trial) for trial in armed), *_kills(draw), *_network(draw))


def _crash(trial: int) -> Action:
    role = f"storm/{trial}"
    params = CRASHES[way(trial)]
    return Action(
        f"crash-{trial:02d}", "app_crash", f"task of {role}", Trigger(role), DEADLINE_S, params
    )


def _kills(draw: Draw) -> tuple[Action, ...]:
    choice: JsonMap = {"choice": draw.integer("flip", "choice", 0, 2**31 - 1), **LOST}
    return tuple(
        Action(
            name,
            kind,
            f"holder of {role}",
            Trigger(role, checkpoints_at_least=draw.integer(name, "checkpoints", 2, 4)),
            DEADLINE_S,
            params,
            Comeback.AT_ONCE,
        )
        for name, kind, role, params in (
            ("kill", "kill", KILLED, LOST),
            ("flip", "flip_bits", ROTTEN, choice),
        )
    )


def _network(draw: Draw) -> tuple[Action, ...]:
    holder = f"holder of {CUT_OFF}"
    steps: tuple[tuple[str, str, str, Trigger, JsonMap], ...] = (
        (
            "latency",
            "latency",
            holder,
            Trigger(CUT_OFF, checkpoints_at_least=1),
            {"latency_ms": draw.integer("latency", "latency_ms", 200, 400)},
        ),
        (
            "black-hole",
            "black_hole",
            holder,
            Trigger(CUT_OFF, after="latency"),
            {"min_hold_ms": int(LEASE_S * 1000) + BEYOND_LEASE_MS},
        ),
        (
            "reset",
            "reset",
            "target of black-hole",
            Trigger(CUT_OFF, after="black-hole"),
            {"hold_ms": draw.integer("reset", "hold_ms", 300, 600)},
        ),
    )
    return tuple(
        Action(name, kind, target, trigger, DEADLINE_S, params)
        for name, kind, target, trigger, params in steps
    )


EXPERIMENT = Experiment(
    name="goodput_storm",
    summary="16 trials on 4 workers: crashes, kills, a rotten checkpoint, a worker that is cut off",
    workload="fan_out",
    faults=faults,
    invariants=("resume_newest_valid", "same_as_reference"),
    workers=4,
    order=80,
    quick=False,
)
