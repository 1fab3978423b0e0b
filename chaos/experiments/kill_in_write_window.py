"""A worker is killed while it writes a checkpoint: the torn save must never count."""

from chaos.model import Action, Trigger
from chaos.schedule import Draw, Experiment

FAULT_ID = "kill-in-write-window"


def faults(draw: Draw) -> tuple[Action, ...]:
    """Kill the holder of main in the first save from a seeded step on."""
    min_step = draw.integer(FAULT_ID, "min_step", 15, 35)
    return (
        Action(
            fault_id=FAULT_ID,
            kind="kill_in_write_window",
            target="holder of main",
            trigger=Trigger(checkpoints_at_least=1),
            deadline_s=90.0,
            params={"min_step": min_step},
        ),
    )


EXPERIMENT = Experiment(
    name="kill_in_write_window",
    summary="kill -9 of a worker between the first part and the manifest of a checkpoint",
    workload="digits",
    faults=faults,
    invariants=("resume_newest_valid", "same_as_reference"),
    order=10,
)
