"""What a worker was told stays so: its claim, its result, its failure are in the ledger."""

from collections import Counter

from chaos.history import History, items, text
from chaos.model import Verdict
from chaos.ports import Invariant

KEPT = {
    "lease_claimed": "LEASE_CLAIMED",
    "attempt_accepted": "TASK_COMMIT_ACCEPTED",
    "attempt_failed": "TASK_ATTEMPT_FAILED",
}


def judge(history: History) -> tuple[Verdict, str]:
    """Look for the event of each answer that a worker logged."""
    events = history.events()
    recorded = {(event.type, event.lease_id) for event in events}
    job_of = {event.task_id: event.job_id for event in events if event.task_id is not None}
    kept: Counter[str] = Counter()
    unheard = None
    for log, lines in history.one("said").items():
        for line in items(lines):
            word, lease_id = str(line.get("event")), text(line.get("lease_id"))
            if word not in KEPT or lease_id is None:
                continue
            if (KEPT[word], lease_id) in recorded:
                kept[word] += 1
            elif (job_id := job_of.get(str(line.get("task_id")))) and history.heard_out(job_id):
                told = f"{log} was told {word} for {lease_id}, and there is no {KEPT[word]} of it"
                return Verdict.VIOLATED, told
            else:
                unheard = lease_id
    if unheard is not None:
        return Verdict.UNKNOWN, f"the events break off before those of {unheard}"
    if not kept:
        return Verdict.UNKNOWN, "no worker's log tells of an answer"
    told = ", ".join(f"{number} {word}" for word, number in sorted(kept.items()))
    return Verdict.VALID, f"what workers were told is in the ledger: {told}"


INVARIANT = Invariant("answers_kept", judge)
