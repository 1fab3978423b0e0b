"""Processes die while the restart policy stands: worker and coordinator come back by themselves."""

from chaos.model import Action, Trigger
from chaos.schedule import Draw, Experiment, expects

WORKER, COORDINATOR = "worker", "coordinator"
DEADLINE_S = 60.0


def faults(draw: Draw) -> tuple[Action, ...]:
    """Kill the holder of main from the host's side, then the coordinator."""
    moment = Trigger(step_at_least=draw.integer(WORKER, "step", 25, 60), checkpoints_at_least=1)
    lost = expects("retry_task", "node_loss", "worker_crash", resumes=True)
    return (
        Action(WORKER, "kill", "holder of main", moment, DEADLINE_S, {"via": "host", **lost}),
        Action(
            COORDINATOR,
            "kill",
            "coordinator",
            Trigger(after=WORKER),
            DEADLINE_S,
            {"via": "host", "costs_nothing": True},
        ),
    )


EXPERIMENT = Experiment(
    name="engine_restarts",
    summary="a worker and the coordinator die, killed from the host, and the engine restarts them",
    workload="line",
    faults=faults,
    invariants=("costs_nothing", "resume_newest_valid", "same_as_reference", "typed_as_injected"),
    order=200,
    quick=False,
    variants=("restarts",),
)
