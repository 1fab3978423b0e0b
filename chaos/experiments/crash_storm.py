"""16 trials on 4 workers: half of them crash on their first attempt, and workers are killed too."""

from chaos.model import Action, Comeback, JsonMap, Trigger
from chaos.schedule import Draw, Experiment, expects
from chaos.workloads.fan_out import TRIALS, way

SIGKILL = 9
EXIT_CODE = 3
SEEN_AS: dict[str, JsonMap] = {
    "exit": {"ended_by": "exit", "exit_code": EXIT_CODE},
    "kill": {"ended_by": "signal", "signal": SIGKILL},
}
CLASSES = {"exit": ("unknown", "worker_crash"), "kill": ("worker_crash",)}
DEADLINE_S = 240.0


def faults(draw: Draw) -> tuple[Action, ...]:
    """Expect each armed trial to crash; kill the holders of `count` of the others."""
    armed = [trial for trial in range(TRIALS) if way(trial) != "none"]
    spared = [trial for trial in range(TRIALS) if way(trial) == "none"]
    size = len(spared) // max(1, draw.count)
    groups = [spared[n * size : (n + 1) * size] for n in range(draw.count)] if size else [spared]
    victims = [draw.choice(f"kill-{n}", "trial", group) for n, group in enumerate(groups, start=1)]
    kills = [_kill(draw, f"kill-{n}", trial) for n, trial in enumerate(victims, start=1)]
    return (*(_crash(trial) for trial in armed), *kills)


def _crash(trial: int) -> Action:
    return Action(
        fault_id=f"crash-{trial:02d}",
        kind="app_crash",
        target=f"task of storm/{trial}",
        trigger=Trigger(f"storm/{trial}"),
        deadline_s=DEADLINE_S,
        params={
            **SEEN_AS[way(trial)],
            **expects("retry_task", *CLASSES[way(trial)], resumes=True),
        },
    )


def _kill(draw: Draw, fault_id: str, trial: int) -> Action:
    saves = draw.integer(fault_id, "checkpoints", 1, 3)
    return Action(
        fault_id=fault_id,
        kind="kill",
        target=f"holder of storm/{trial}",
        trigger=Trigger(f"storm/{trial}", checkpoints_at_least=saves),
        deadline_s=DEADLINE_S,
        params=expects("retry_task", "node_loss", "worker_crash", resumes=True),
        comeback=Comeback.AT_ONCE,
    )


EXPERIMENT = Experiment(
    name="crash_storm",
    summary="16 trials on 4 workers, 8 crash once, and workers are killed under the others",
    workload="fan_out",
    faults=faults,
    invariants=("resume_newest_valid", "same_as_reference", "typed_as_injected"),
    workers=4,
    order=60,
    quick=False,
    count=2,
)
