"""The coordinator is killed at the very fsync that makes a change of its ledger last.

What it had not answered may be there or not; what it had answered must be.
"""

from chaos.model import Action, Comeback, Trigger
from chaos.schedule import Draw, Experiment

LEDGER = "/var/lib/flashruntime/ledger/ledger.sqlite3-wal"
CALLS = ("fdatasync", "pwrite64")
MOST_NTH = 12
HOLD_MS = 15_000
FIRST_S, EACH_S = 30.0, 30.0


def faults(draw: Draw) -> tuple[Action, ...]:
    """Kill it `count` times, each time at a seeded call on its write-ahead log."""
    return tuple(_kill(draw, number) for number in range(1, draw.count + 1))


def _kill(draw: Draw, number: int) -> Action:
    name = f"fsync-{number:02d}"
    before = f"fsync-{number - 1:02d}" if number > 1 else None
    return Action(
        fault_id=name,
        kind="kill_at_syscall",
        target="coordinator",
        trigger=Trigger("storm", event="LEASE_CLAIMED", after=before),
        deadline_s=FIRST_S + EACH_S * number,
        params={
            "call": CALLS[(number - 1) % len(CALLS)],
            "path": LEDGER,
            "nth": draw.integer(name, "nth", 1, MOST_NTH),
            "hold_ms": HOLD_MS,
        },
        comeback=Comeback.AT_ONCE,
    )


EXPERIMENT = Experiment(
    name="coordinator_killed_at_fsync",
    summary="the coordinator is killed at exact writes and fsyncs of its ledger",
    workload="short_tasks",
    faults=faults,
    invariants=("answers_kept", "lease_linearizable"),
    workers=2,
    order=132,
    quick=False,
    count=4,
)
