"""Steps: how many were executed, how many of them were of use."""

from collections.abc import Iterator
from dataclasses import dataclass

from chaos.history import History, HistoryError, integer, items, mapping, text


@dataclass(frozen=True, slots=True)
class Work:
    """The steps of one task, summed over its attempts.

    `useful` is how far the task came. `redone` were lost with an attempt, and `kept` are those
    that its checkpoints saved the next one.
    """

    useful: int
    executed: int
    kept: int

    @property
    def redone(self) -> int:
        """Steps that were executed more than once."""
        return max(0, self.executed - self.useful)


def work(history: History, role: str) -> tuple[Work, ...]:
    """Return the work of each task of a job, as far as it can be counted.

    Executed are, for each attempt, the steps from where it took over to its last one: as the
    accepted attempt says; of a lost one as its worker or the coordinator heard, as its newest
    checkpoint or the save that a fault interrupted shows. What it did after that is missing.
    """
    lanes = [lane for lane in history.lanes.values() if lane.partition("/")[0] == role]
    found = (_work(history, lane) for lane in sorted(set(lanes)))
    return tuple(each for each in found if each is not None)


def _work(history: History, lane: str) -> Work | None:
    starts = _starts(history, lane)
    ends: dict[str, int] = {}
    for attempt_id, step in (*_heard(history, lane), *_saved(history, lane), *_told(history, lane)):
        ends[attempt_id] = max(step, ends.get(attempt_id, 0))
    ends |= _accepted_end(history, lane)
    if not ends:
        return None
    executed = sum(max(0, end - starts.get(attempt, 0)) for attempt, end in ends.items())
    return Work(max(ends.values()), executed, sum(starts.values()))


def goodput(history: History, *roles: str) -> float | None:
    """Return useful / executed steps of these jobs (default: main): an upper bound.

    None where they cannot be counted.
    """
    done = [each for role in roles or ("main",) for each in work(history, role)]
    executed = sum(each.executed for each in done)
    return sum(each.useful for each in done) / executed if executed else None


def _starts(history: History, lane: str) -> dict[str, int]:
    return {
        str(link["attempt_id"]): integer(link.get("step")) or 0
        for tree in history.of("checkpoints")
        if tree.get("role") == lane
        for link in items(tree.get("lineage"))
    }


def _heard(history: History, lane: str) -> Iterator[tuple[str, int]]:
    for job in history.of("task"):
        task = mapping(job.get("task"))
        lease_id, step = text(task.get("lease_id")), integer(task.get("step"))
        if job.get("role") == lane and lease_id is not None and step is not None:
            yield lease_id, step


def _saved(history: History, lane: str) -> Iterator[tuple[str, int]]:
    for tree in history.of("committed", "checkpoints"):
        for found in items(tree.get("checkpoints", tree.get("steps"))):
            attempt_id, step = text(found.get("attempt_id")), integer(found.get("step"))
            if tree.get("role") == lane and attempt_id is not None and step is not None:
                yield attempt_id, step


def _told(history: History, lane: str) -> Iterator[tuple[str, int]]:
    """Yield what faults say of the attempts that they hit, and workers of those that failed."""
    lanes = history.lanes
    events = history.events()
    own = {event.lease_id for event in events if lanes.get(str(event.task_id)) == lane}
    reports = [
        (text(mapping(receipt.get("evidence")).get("lease_id")), receipt.get("evidence"))
        for receipt in history.of("fault_receipt")
    ]
    reports += [
        (event.lease_id, event.data.get("evidence"))
        for event in events
        if event.type == "TASK_ATTEMPT_FAILED"
    ]
    for lease_id, evidence in reports:
        step = integer(mapping(evidence).get("step"))
        if lease_id in own and lease_id is not None and step is not None:
            yield lease_id, step


def _accepted_end(history: History, lane: str) -> dict[str, int]:
    """Return the last step of the accepted attempt by its own word, where it says one."""
    role, _, index = lane.partition("/")
    try:
        task = history.task_ends(role)[int(index or 0)]
    except (HistoryError, IndexError):
        return {}
    lease_id, steps = text(task.get("lease_id")), integer(mapping(task.get("metrics")).get("steps"))
    return {lease_id: steps} if lease_id is not None and steps is not None else {}
