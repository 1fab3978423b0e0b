"""A worker freezes beyond its lease and wakes up while another has its task: the other zombie.

Its connections stay open meanwhile, so that only its silence tells.
"""

from chaos.model import Action, Trigger
from chaos.schedule import Draw, Experiment, expects
from chaos.workloads.line import LEASE_S

PAUSE = "pause"
BEYOND_LEASE_MS = 500


def faults(draw: Draw) -> tuple[Action, ...]:
    """Freeze the holder of main at a seeded step, until another has claimed its task."""
    return (
        Action(
            fault_id=PAUSE,
            kind="pause",
            target="holder of main",
            trigger=Trigger(
                step_at_least=draw.integer(PAUSE, "step", 25, 60), checkpoints_at_least=1
            ),
            deadline_s=60.0,
            params={
                "min_hold_ms": int(LEASE_S * 1000) + BEYOND_LEASE_MS,
                **expects("retry_task", "node_loss", resumes=True),
            },
        ),
    )


EXPERIMENT = Experiment(
    name="zombie_pause",
    summary="a worker is frozen beyond its lease and goes on while another has its task",
    workload="line",
    faults=faults,
    invariants=(
        "resume_newest_valid",
        "same_as_reference",
        "typed_as_injected",
        "no_orphan_process",
    ),
    order=110,
    quick=False,
)
