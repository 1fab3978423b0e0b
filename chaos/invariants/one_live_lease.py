"""At most one live lease for each task, with attempt numbers that only rise."""

from chaos.history import Event, History, integer
from chaos.model import Verdict
from chaos.ports import Invariant
from chaos.words import counted

ENDS = {"LEASE_EXPIRED", "TASK_REQUEUED", "TASK_ATTEMPT_FAILED", "TASK_COMMIT_ACCEPTED"}
BEGINS = {"LEASE_CLAIMED", "LEASE_RENEWED"}


def judge(history: History) -> tuple[Verdict, str]:
    """Replay the events of each task."""
    live: dict[str, str] = {}
    number: dict[str, int] = {}
    claims = 0
    for event in history.events():
        if event.task_id is None or event.lease_id is None:
            continue
        if event.type in BEGINS:
            other = live.get(event.task_id, event.lease_id)
            if other != event.lease_id:
                return Verdict.VIOLATED, _two(event, other)
            live[event.task_id] = event.lease_id
        elif event.type in ENDS and live.get(event.task_id) == event.lease_id:
            del live[event.task_id]
        if event.type == "LEASE_CLAIMED":
            claims += 1
            attempt = integer(event.data.get("attempt_number"))
            if attempt is None:
                return Verdict.UNKNOWN, f"event {event.id} has no attempt_number"
            if attempt <= number.get(event.task_id, 0):
                return Verdict.VIOLATED, f"event {event.id} repeats attempt number {attempt}"
            number[event.task_id] = attempt
    if not claims:
        return Verdict.UNKNOWN, "no lease was ever claimed"
    told = f"{counted(claims, 'claim')} on {counted(len(number), 'task')}"
    return Verdict.VALID, f"{told}: never two live at once, attempt numbers only rose"


def _two(event: Event, other: str) -> str:
    return f"event {event.id} gives {event.task_id} to {event.lease_id} while {other} is still live"


INVARIANT = Invariant("one_live_lease", judge)
