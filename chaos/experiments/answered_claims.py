"""The coordinator dies as soon as a worker's own log tells that a claim was answered.

The moment comes from outside the coordinator: one that answers before it has written is caught,
however soon it writes.
"""

from chaos.model import Action, Comeback, Trigger
from chaos.schedule import Draw, Experiment

WORKERS = 2
FIRST_S = 30.0
EACH_S = 25.0


def faults(draw: Draw) -> tuple[Action, ...]:
    """Kill the coordinator `count` times, each time after a claim of another worker."""
    return tuple(_kill(number) for number in range(1, draw.count + 1))


def _kill(number: int) -> Action:
    before = f"claim-{number - 1:02d}" if number > 1 else None
    return Action(
        fault_id=f"claim-{number:02d}",
        kind="kill",
        target="coordinator",
        trigger=Trigger(
            "storm",
            after=before,
            log_of=f"worker-{(number - 1) % WORKERS + 1}",
            log_like='"event": "lease_claimed"',
        ),
        deadline_s=FIRST_S + EACH_S * number,
        comeback=Comeback.AT_ONCE,
    )


EXPERIMENT = Experiment(
    name="answered_claims",
    summary="kill -9 of the coordinator the moment a worker has heard of its claim",
    workload="short_tasks",
    faults=faults,
    invariants=("answers_kept",),
    workers=WORKERS,
    order=131,
    quick=False,
    count=5,
)
