"""A worker dies in mid-lease, again and again: how soon is it noticed, how soon is the work done?

Each cycle is a job of its own on an idle fleet, so that nothing but the runtime is measured.
"""

from chaos.model import Action, Comeback, Trigger
from chaos.schedule import Draw, Experiment, expects
from chaos.workloads.cycles import role

CYCLE_S = 30.0


def faults(draw: Draw) -> tuple[Action, ...]:
    """Kill the holder of each cycle once it has a seeded number of checkpoints."""
    numbers = range(1, draw.count + 1)
    return tuple(_kill(draw, number, f"kill-{number:03d}") for number in numbers)


def _kill(draw: Draw, number: int, fault_id: str) -> Action:
    saves = draw.integer(fault_id, "checkpoints", 1, 3)
    after = f"kill-{number - 1:03d}" if number > 1 else None
    return Action(
        fault_id=fault_id,
        kind="kill",
        target=f"holder of {role(number)}",
        trigger=Trigger(role(number), checkpoints_at_least=saves, after=after),
        deadline_s=CYCLE_S * (number + 1),
        params=expects("retry_task", "node_loss", "worker_crash", resumes=True),
        comeback=Comeback.RECLAIMED,
    )


EXPERIMENT = Experiment(
    name="lease_recovery",
    summary="kill -9 of a worker in mid-lease, once in each of several jobs",
    workload="cycles",
    faults=faults,
    invariants=("resume_newest_valid", "same_as_reference", "typed_as_injected"),
    order=40,
    quick=False,
    count=5,
)
