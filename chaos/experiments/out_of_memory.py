"""A worker's memory shrinks, its attempt asks for more: killed, called so, and tried again."""

from chaos.model import Action, Trigger
from chaos.schedule import Draw, Experiment, expects

SHRINK = "shrink"


def faults(draw: Draw) -> tuple[Action, ...]:
    """Leave the holder of main much less room than it is about to ask for."""
    return (
        Action(
            fault_id=SHRINK,
            kind="out_of_memory",
            target="holder of main",
            trigger=Trigger(
                step_at_least=draw.integer(SHRINK, "step", 25, 60), checkpoints_at_least=1
            ),
            deadline_s=60.0,
            params={
                "room_mib": draw.integer(SHRINK, "room_mib", 120, 240),
                **expects("retry_task", "resource_exhausted", resumes=True),
            },
        ),
    )


EXPERIMENT = Experiment(
    name="out_of_memory",
    summary="the kernel kills an attempt for its memory; it is called so and tried again",
    workload="hungry",
    faults=faults,
    invariants=("resume_newest_valid", "same_as_reference", "typed_as_injected"),
    order=150,
    quick=False,
)
