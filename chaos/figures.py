"""What is measured in a history: losses with their detection and recovery, and goodput.

Durations are computed only between times of equal boot id.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from chaos.history import Event, History, integer, items, mapping, text
from chaos.model import JsonValue

NOTICED = {"LEASE_EXPIRED", "TASK_REQUEUED"}
NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Loss:
    """A holder that a fault took away, and how the system got over it.

    `detected_s`: from the fault until its task was claimable again. `reclaimed_s`: until the next
    attempt was claimed. `progressed_s`: until the first step of a later attempt was seen. None
    where it did not happen, or cannot be told.
    """

    fault_id: str
    lease_id: str
    job_id: str
    lease_s: float
    detected_s: float | None
    reclaimed_s: float | None
    progressed_s: float | None


def losses(history: History) -> tuple[Loss, ...]:
    """Return every loss of a holder by a fault that landed."""
    found = []
    for record in history.records:
        lease_id = text(record.data.get("lost_lease_id"))
        began_ns = integer(record.data.get("took_effect_ns"))
        if record.kind == "fault_receipt" and lease_id is not None and began_ns is not None:
            fault_id = str(record.data["fault_id"])
            loss = _loss(history, fault_id, lease_id, (record.boot_id, began_ns))
            found += [loss] if loss else []
    return tuple(found)


def untold(history: History) -> tuple[str, ...]:
    """Return the faults that took a holder away and of which the history does not tell enough."""
    told = {(loss.fault_id, loss.lease_id) for loss in losses(history)}
    lost = [
        (str(receipt["fault_id"]), lease_id)
        for receipt in history.of("fault_receipt")
        if (lease_id := text(receipt.get("lost_lease_id"))) is not None
    ]
    return tuple(
        f"{fault_id} ({lease_id})"
        for fault_id, lease_id in lost
        if (fault_id, lease_id) not in told
    )


def _loss(history: History, fault_id: str, lease_id: str, began: tuple[str, int]) -> Loss | None:
    claims = [event for event in history.events() if event.type == "LEASE_CLAIMED"]
    lost = next((event for event in claims if event.lease_id == lease_id), None)
    if lost is None or lost.job_id is None:
        return None
    later = [e for e in claims if e.task_id == lost.task_id and e.id > lost.id]
    noticed = [
        event
        for event in history.events(lost.job_id)
        if event.id > lost.id
        and (event in later or (event.lease_id == lease_id and event.type in NOTICED))
    ]
    return Loss(
        fault_id=fault_id,
        lease_id=lease_id,
        job_id=lost.job_id,
        lease_s=lease_s(history, lost.job_id),
        detected_s=_first(began, noticed),
        reclaimed_s=_first(began, later),
        progressed_s=_progress(history, began, {str(event.lease_id) for event in later}),
    )


def _first(began: tuple[str, int], events: list[Event]) -> float | None:
    boot_id, began_ns = began
    times = [e.mono_ns for e in events if e.boot_id == boot_id and e.mono_ns >= began_ns]
    return (min(times) - began_ns) / NS if times else None


def _progress(history: History, began: tuple[str, int], leases: set[str]) -> float | None:
    boot_id, began_ns = began
    for record in history.records:
        task = mapping(record.data.get("task")) if record.kind == "task" else {}
        seen = text(task.get("lease_id")) in leases and integer(task.get("step")) is not None
        if seen and record.boot_id == boot_id and record.t_ns >= began_ns:
            return (record.t_ns - began_ns) / NS
    return None


def lease_s(history: History, job_id: str) -> float:
    """Return the lease of a job, in seconds, as it was submitted."""
    for job in history.of("job_submitted"):
        seconds = job.get("lease_s")
        if job.get("job_id") == job_id and isinstance(seconds, int | float):
            return float(seconds)
    return 0.0


def goodput(history: History, role: str = "main") -> float | None:
    """Return useful steps / executed steps of a job, None where they cannot be counted.

    Executed are, for each attempt, the steps from where it took over to its last one: as the
    accepted attempt says; of a lost one as the coordinator heard, as its newest checkpoint or
    the save that a fault interrupted shows. Steps after that are missing: an upper bound.
    """
    starts = {
        str(link["attempt_id"]): integer(link.get("step")) or 0
        for tree in history.of("checkpoints")
        if tree.get("role") == role
        for link in items(tree.get("lineage"))
    }
    ends: dict[str, int] = {}
    seen = (*_heard(history, role), *_saved(history, role), *_interrupted(history, role))
    for attempt_id, step in seen:
        ends[attempt_id] = max(step, ends.get(attempt_id, 0))
    ends |= _accepted_end(history, role)
    executed = sum(max(0, end - starts.get(attempt, 0)) for attempt, end in ends.items())
    return max(ends.values()) / executed if executed else None


def _heard(history: History, role: str) -> Iterator[tuple[str, int]]:
    for job in history.of("task"):
        task = mapping(job.get("task"))
        lease_id, step = text(task.get("lease_id")), integer(task.get("step"))
        if job.get("role") == role and lease_id is not None and step is not None:
            yield lease_id, step


def _saved(history: History, role: str) -> Iterator[tuple[str, int]]:
    for tree in history.of("committed", "checkpoints"):
        for found in items(tree.get("checkpoints", tree.get("steps"))):
            attempt_id, step = text(found.get("attempt_id")), integer(found.get("step"))
            if tree.get("role") == role and attempt_id is not None and step is not None:
                yield attempt_id, step


def _interrupted(history: History, role: str) -> Iterator[tuple[str, int]]:
    own = {e.lease_id for e in history.events() if history.role_of().get(str(e.job_id)) == role}
    for receipt in history.of("fault_receipt"):
        evidence = mapping(receipt.get("evidence"))
        lease_id, step = text(evidence.get("lease_id")), integer(evidence.get("step"))
        if lease_id in own and lease_id is not None and step is not None:
            yield lease_id, step


def _accepted_end(history: History, role: str) -> dict[str, int]:
    """Return the last step of the accepted attempt by its own word, where it says one."""
    finals = [final for final in history.of("job_final") if final.get("role") == role]
    tasks = items(finals[-1].get("tasks")) if finals else []
    steps = integer(mapping(finals[-1].get("metrics")).get("steps")) if finals else None
    lease_id = text(tasks[0].get("lease_id")) if tasks else None
    return {lease_id: steps} if lease_id is not None and steps is not None else {}


def figures(history: History) -> dict[str, JsonValue]:
    """Return what the verdict states as figures; lists hold one number for each loss."""
    lost = losses(history)
    useful = goodput(history)
    mttd = [loss.detected_s for loss in lost if loss.detected_s is not None]
    reclaim = [loss.reclaimed_s for loss in lost if loss.reclaimed_s is not None]
    mttr = [loss.progressed_s for loss in lost if loss.progressed_s is not None]
    return {
        "mttd_s": [round(seconds, 3) for seconds in mttd],
        "reclaim_s": [round(seconds, 3) for seconds in reclaim],
        "mttr_s": [round(seconds, 3) for seconds in mttr],
        "goodput": round(useful, 4) if useful is not None else None,
    }
