"""A worker's agent dies while its container lives: what it had started must not train on."""

from chaos.model import Action, Trigger
from chaos.schedule import Draw, Experiment, expects

KILL = "kill-agent"


def faults(draw: Draw) -> tuple[Action, ...]:
    """Kill the agent that runs main at a seeded step, and nothing else."""
    return (
        Action(
            fault_id=KILL,
            kind="kill_agent",
            target="holder of main",
            trigger=Trigger(
                step_at_least=draw.integer(KILL, "step", 25, 60), checkpoints_at_least=1
            ),
            deadline_s=60.0,
            params=expects("retry_task", "node_loss", "worker_crash", resumes=True),
        ),
    )


EXPERIMENT = Experiment(
    name="agent_killed",
    summary="kill -9 of an agent alone: its container lives, its training must not",
    workload="line",
    faults=faults,
    invariants=(
        "no_orphan_process",
        "resume_newest_valid",
        "same_as_reference",
        "typed_as_injected",
    ),
    order=190,
    quick=False,
    variants=("supervised",),
)
