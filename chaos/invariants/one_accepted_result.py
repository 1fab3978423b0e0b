"""Every task has exactly one accepted result, ever."""

from collections import Counter

from chaos.history import History, items
from chaos.model import Verdict
from chaos.ports import Invariant
from chaos.words import counted


def judge(history: History) -> tuple[Verdict, str]:
    """Count TASK_COMMIT_ACCEPTED for each task against the final state of the task."""
    accepted = Counter(
        str(event.task_id) for event in history.events() if event.type == "TASK_COMMIT_ACCEPTED"
    )
    if twice := sorted(task for task, count in accepted.items() if count > 1):
        return Verdict.VIOLATED, f"more than one accepted result: {', '.join(twice)}"
    tasks = [
        task for role in history.role_of().values() for task in items(history.final(role)["tasks"])
    ]
    for task in tasks:
        task_id, completed = str(task["task_id"]), task["state"] == "COMPLETED"
        if completed and not accepted[task_id] and not history.heard_out(str(task["job_id"])):
            return Verdict.UNKNOWN, f"the events of task {task_id} break off before its end"
        if completed != bool(accepted[task_id]):
            return (
                Verdict.VIOLATED,
                f"task {task_id} ended {task['state']} with {accepted[task_id]} accepted results",
            )
    if not tasks:
        return Verdict.UNKNOWN, "no task was recorded"
    return (
        Verdict.VALID,
        f"{counted(len(tasks), 'task')}, one accepted result for each that completed",
    )


INVARIANT = Invariant("one_accepted_result", judge)
