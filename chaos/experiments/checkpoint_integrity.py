"""The same job is killed in the write window again and again: no torn save ever counts."""

from chaos.model import Action, Comeback, Trigger
from chaos.schedule import Draw, Experiment, expects
from chaos.workloads.small_steps import FIRST_STEP, STEPS_PER_KILL

KILL_S = 30.0


def faults(draw: Draw) -> tuple[Action, ...]:
    """Kill the holder of main in a save, each time at a seeded step beyond the last time's."""
    numbers = range(1, draw.count + 1)
    return tuple(_kill(draw, number, f"kill-{number:03d}") for number in numbers)


def _kill(draw: Draw, number: int, fault_id: str) -> Action:
    base = FIRST_STEP + STEPS_PER_KILL * (number - 1)
    min_step = base + draw.integer(fault_id, "step", 0, STEPS_PER_KILL - 3)
    after = f"kill-{number - 1:03d}" if number > 1 else None
    return Action(
        fault_id=fault_id,
        kind="kill_in_write_window",
        target="holder of main",
        trigger=Trigger(checkpoints_at_least=1, after=after),
        deadline_s=KILL_S * (number + 1),
        params={
            "min_step": min_step,
            **expects("retry_task", "node_loss", "worker_crash", resumes=True),
        },
        comeback=Comeback.RECLAIMED,
    )


EXPERIMENT = Experiment(
    name="checkpoint_integrity",
    summary="kill -9 in the write window of one job, again and again, 50 MB at every step",
    workload="small_steps",
    faults=faults,
    invariants=("resume_newest_valid", "same_as_reference", "typed_as_injected"),
    order=50,
    quick=False,
    count=5,
)
