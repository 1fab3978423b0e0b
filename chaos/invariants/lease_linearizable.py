"""All that was answered about a task's lease fits one register that is asked one call at a time."""

from chaos.figures.calls import boots, calls
from chaos.history import History
from chaos.linearizable import Outcome, check
from chaos.model import Verdict
from chaos.ports import Invariant
from chaos.words import counted


def judge(history: History) -> tuple[Verdict, str]:
    """Search an order for each task's calls: of the ledger, the workers, the request log.

    What a worker was answered must be in that order too, so that an answer cannot be forgotten.
    """
    if boots(history) > 1:
        return Verdict.UNKNOWN, "the coordinator's events are of several boots: no common clock"
    found = calls(history)
    if not found:
        return Verdict.UNKNOWN, "no lease was ever claimed"
    history.one("said")
    undecided = []
    for task_id, operations in sorted(found.items()):
        result = check(operations)
        if result.outcome is Outcome.NOT_LINEARIZABLE:
            stuck = "; ".join(each.told for each in result.stuck[:3])
            return Verdict.VIOLATED, f"{task_id}: no order of its calls explains {stuck}"
        undecided += [task_id] if result.outcome is Outcome.UNDECIDED else []
    if undecided:
        return Verdict.UNKNOWN, f"the search was given up for {', '.join(undecided)}"
    total = counted(sum(len(operations) for operations in found.values()), "call")
    return Verdict.VALID, f"{total} on {counted(len(found), 'task')}: each task's in one order"


INVARIANT = Invariant("lease_linearizable", judge)
