"""An attempt goes on from the checkpoint that it took over, and its steps only rise."""

from chaos.figures import lineage
from chaos.history import History, HistoryError, integer, items, mapping, text
from chaos.model import Verdict
from chaos.ports import Invariant
from chaos.words import counted


def judge(history: History) -> tuple[Verdict, str]:
    """Follow the steps that each attempt told, saved, and had accepted, in that order."""
    floors = _floors(history)
    last: dict[str, int] = {}
    for lease_id, step, what in [*_told(history), *_accepted(history)]:
        floor = floors.get(lease_id, 0)
        if step < floor:
            return Verdict.VIOLATED, f"{lease_id} {what} step {step}, and took over step {floor}"
        if step < last.get(lease_id, 0):
            return Verdict.VIOLATED, f"{lease_id} {what} step {step} after step {last[lease_id]}"
        last[lease_id] = step
    if not last:
        return Verdict.UNKNOWN, "no attempt told a step"
    resumed = sum(floor > 0 for floor in floors.values())
    told = f"{counted(len(last), 'attempt')} told steps that only rose"
    return Verdict.VALID, f"{told}; {resumed} of {len(floors)} resumed, none below its checkpoint"


def _floors(history: History) -> dict[str, int]:
    """Return attempt -> the step that it took over."""
    lanes = {str(tree["role"]) for tree in history.of("checkpoints") if items(tree.get("lineage"))}
    return {
        resume.attempt_id: max(0, resume.step)
        for lane in sorted(lanes)
        for resume in lineage.chain(history, lane)
    }


def _told(history: History) -> list[tuple[str, int, str]]:
    found = []
    for view in history.of("task"):
        task = mapping(view.get("task"))
        lease_id, step = text(task.get("lease_id")), integer(task.get("step"))
        if lease_id is not None and step is not None:
            found.append((lease_id, step, "told"))
    return found


def _accepted(history: History) -> list[tuple[str, int, str]]:
    """Return the last step of each accepted attempt, by its event and by its own metrics."""
    found = []
    for role in history.role_of().values():
        try:
            ends = history.task_ends(role)
        except HistoryError:
            continue
        for task in ends:
            lease_id, step = (
                text(task.get("lease_id")),
                integer(mapping(task["metrics"]).get("steps")),
            )
            if task.get("state") == "COMPLETED" and lease_id is not None and step is not None:
                found.append((lease_id, step, "ended at"))
    return found


INVARIANT = Invariant("steps_never_regress", judge)
