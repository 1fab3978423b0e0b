"""A worker is asked to leave and given notice: its attempt saves, another goes on from there."""

from chaos.model import Action, Comeback, Trigger
from chaos.schedule import Draw, Experiment, expects

NOTICE = "notice"


def faults(draw: Draw) -> tuple[Action, ...]:
    """Stop the holder of main at a seeded step, as a cloud does with a machine."""
    return (
        Action(
            fault_id=NOTICE,
            kind="stop",
            target="holder of main",
            trigger=Trigger(
                step_at_least=draw.integer(NOTICE, "step", 25, 90), checkpoints_at_least=1
            ),
            deadline_s=60.0,
            params={"saves": True, **expects("retry_task", "preemption", resumes=True)},
            comeback=Comeback.RECLAIMED,
        ),
    )


EXPERIMENT = Experiment(
    name="preemption_notice",
    summary="a worker is stopped with notice; its attempt saves and another goes on",
    workload="line",
    faults=faults,
    invariants=("resume_newest_valid", "same_as_reference", "typed_as_injected"),
    order=140,
    quick=False,
)
