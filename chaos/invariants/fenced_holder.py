"""Once another attempt has claimed the task, the earlier holder changes nothing."""

from chaos.history import History
from chaos.model import Verdict
from chaos.ports import Invariant
from chaos.words import counted

CHANGES = {
    "LEASE_RENEWED",
    "TASK_COMMIT_ACCEPTED",
    "TASK_ATTEMPT_FAILED",
    "CHECKPOINT_MANIFEST_COMMITTED",
}


def judge(history: History) -> tuple[Verdict, str]:
    """Look for a change under a lease after a later claim of the same task."""
    holder: dict[str, str] = {}
    fenced: set[str] = set()
    refused = 0
    for event in history.events():
        if event.task_id is None or event.lease_id is None:
            continue
        if event.type == "LEASE_CLAIMED":
            before = holder.get(event.task_id)
            fenced |= {before} if before not in (None, event.lease_id) else set()
            holder[event.task_id] = event.lease_id
        elif event.lease_id in fenced and event.type in CHANGES:
            return (
                Verdict.VIOLATED,
                f"{event.lease_id} was superseded by {holder[event.task_id]} on {event.task_id}, "
                f"yet event {event.id} is its {event.type}",
            )
        refused += event.lease_id in fenced
    if not holder:
        return Verdict.UNKNOWN, "no lease was ever claimed"
    if not fenced:
        return Verdict.VALID, "no lease was superseded"
    told = f"{counted(refused, 'late call')} refused" if refused else "no late call came"
    return (
        Verdict.VALID,
        f"{counted(len(fenced), 'superseded lease')} changed nothing afterwards; {told}",
    )


INVARIANT = Invariant("fenced_holder", judge)
