"""The newest checkpoint rots while its worker is down: resume from the older one, and say so."""

from chaos.model import Action, Trigger
from chaos.schedule import Draw, Experiment

KILL, FLIP = "kill", "flip-newest"


def faults(draw: Draw) -> tuple[Action, ...]:
    """Kill the holder of main once it has two checkpoints, then flip a bit of the newest."""
    return (
        Action(
            fault_id=KILL,
            kind="kill",
            target="holder of main",
            trigger=Trigger(checkpoints_at_least=2),
            deadline_s=45.0,
            params={"signal": "SIGKILL"},
        ),
        Action(
            fault_id=FLIP,
            kind="flip_bits",
            target="checkpoints of main",
            trigger=Trigger(after=KILL),
            deadline_s=60.0,
            params={"choice": draw.integer(FLIP, "choice", 0, 2**31 - 1)},
        ),
    )


EXPERIMENT = Experiment(
    name="corrupt_newest_checkpoint",
    summary="a bit of the newest checkpoint flips on the volume while its worker is down",
    workload="digits",
    faults=faults,
    invariants=("resume_newest_valid", "rejection_recorded", "same_as_reference"),
    order=20,
)
