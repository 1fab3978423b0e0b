"""Losses of holders, with their detection and recovery.

Durations are computed only between times of equal boot id.
"""

from dataclasses import dataclass, replace

from chaos.history import Event, History, Record, integer, items, mapping, text

NOTICED = {"LEASE_EXPIRED", "TASK_REQUEUED"}
NS = 1_000_000_000
SESSION_S = 1.0
"""The longer grace of a session, that of several which end together."""


@dataclass(frozen=True, slots=True)
class Loss:
    """A holder that a fault took away, and how the system got over it.

    `detected_s`: from the fault until its task was claimable again. `reclaimed_s`: until the next
    attempt was claimed. `progressed_s`: until the first step of a later attempt was seen.
    `commit_s`: from that next claim until its result was accepted. None where it did not happen,
    or cannot be told. `died` tells that the holder's process ended, so that its session did too;
    `noticed_by` is the coordinator's reason, where it gives one.
    """

    fault_id: str
    lease_id: str
    job_id: str
    lease_s: float
    detected_s: float | None
    reclaimed_s: float | None
    progressed_s: float | None
    commit_s: float | None
    died: bool = False
    noticed_by: str | None = None

    @property
    def signal_s(self) -> float:
        """Return after what time it must be known, on a machine that is never busy."""
        return SESSION_S if self.died else self.lease_s


def losses(history: History) -> tuple[Loss, ...]:
    """Return every loss of a holder by a fault that landed."""
    found = []
    for record in history.records:
        lease_id = text(record.data.get("lost_lease_id"))
        began_ns = integer(record.data.get("took_effect_ns"))
        if record.kind == "fault_receipt" and lease_id is not None and began_ns is not None:
            fault_id = str(record.data["fault_id"])
            loss = _loss(history, fault_id, lease_id, (record.boot_id, began_ns))
            died = integer(mapping(record.data.get("evidence")).get("exit_code")) is not None
            found += [replace(loss, died=died)] if loss else []
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
        commit_s=_commit(history, later[0]) if later else None,
        noticed_by=next((text(e.data.get("reason")) for e in noticed if e.type in NOTICED), None),
    )


def _first(began: tuple[str, int], events: list[Event]) -> float | None:
    boot_id, began_ns = began
    times = [e.mono_ns for e in events if e.boot_id == boot_id and e.mono_ns >= began_ns]
    return (min(times) - began_ns) / NS if times else None


def _commit(history: History, claim: Event) -> float | None:
    accepted = [
        event
        for event in history.events(claim.job_id)
        if event.type == "TASK_COMMIT_ACCEPTED" and event.lease_id == claim.lease_id
    ]
    return _first((claim.boot_id, claim.mono_ns), accepted)


def _progress(history: History, began: tuple[str, int], leases: set[str]) -> float | None:
    boot_id, began_ns = began
    times = [
        at_ns
        for record in history.records
        if record.boot_id == boot_id
        for at_ns in [_stepped_at(record, leases)]
        if at_ns is not None and at_ns >= began_ns
    ]
    return (min(times) - began_ns) / NS if times else None


def _stepped_at(record: Record, leases: set[str]) -> int | None:
    """Return when a record shows a step of one of these leases: told, saved, or cut off in a save.

    A worker that is killed soon after it took over may never have told a step.
    """
    if record.kind == "task":
        task = mapping(record.data.get("task"))
        told = text(task.get("lease_id")) in leases and integer(task.get("step")) is not None
        return record.t_ns if told else None
    if record.kind == "committed":
        saved = any(text(s.get("attempt_id")) in leases for s in items(record.data.get("steps")))
        return record.t_ns if saved else None
    if record.kind == "fault_receipt":
        evidence = mapping(record.data.get("evidence"))
        hit = text(evidence.get("lease_id")) in leases
        return integer(evidence.get("window_seen_ns")) if hit else None
    return None


def lease_s(history: History, job_id: str) -> float:
    """Return the lease of a job, in seconds, as it was submitted."""
    for job in history.of("job_submitted"):
        seconds = job.get("lease_s")
        if job.get("job_id") == job_id and isinstance(seconds, int | float):
            return float(seconds)
    return 0.0
