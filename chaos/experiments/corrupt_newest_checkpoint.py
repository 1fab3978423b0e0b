"""The newest checkpoint rots under a worker that dies: resume from the older one, and say so."""

from chaos.model import Action, Trigger
from chaos.schedule import Draw, Experiment

FLIP = "flip-newest"


def faults(draw: Draw) -> tuple[Action, ...]:
    """Flip a bit of the newest checkpoint of main once it has two, and kill its holder."""
    return (
        Action(
            fault_id=FLIP,
            kind="flip_bits",
            target="holder of main",
            trigger=Trigger(checkpoints_at_least=2),
            deadline_s=60.0,
            params={"choice": draw.integer(FLIP, "choice", 0, 2**31 - 1)},
        ),
    )


EXPERIMENT = Experiment(
    name="corrupt_newest_checkpoint",
    summary="a bit of the newest checkpoint flips on the volume as its worker is killed",
    workload="digits",
    faults=faults,
    invariants=("resume_newest_valid", "rejection_recorded", "same_as_reference"),
    order=20,
)
