"""Losses of holders, with their detection and recovery.

Durations are computed only between times of equal boot id.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from chaos.figures.late import late
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
    `noticed_by` is the coordinator's reason, where it gives one. `heard_s`: for how long afterwards
    the coordinator was heard.
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
    heard_s: float | None = None

    @property
    def signal_s(self) -> float:
        """Return after what time it must be known, on a machine that is never busy."""
        return SESSION_S if self.died else self.lease_s


def losses(history: History) -> tuple[Loss, ...]:
    """Return every loss of a holder by a fault that landed."""
    found, seen, missed = [], _Seen.of(history), late(history)
    for record in history.records:
        lease_id = text(record.data.get("lost_lease_id"))
        began_ns = integer(record.data.get("took_effect_ns"))
        if record.kind == "fault_receipt" and lease_id is not None and began_ns is not None:
            fault_id = str(record.data["fault_id"])
            if fault_id in missed:
                continue
            loss = _loss(seen, fault_id, lease_id, (record.boot_id, began_ns))
            died = integer(mapping(record.data.get("evidence")).get("exit_code")) is not None
            found += [replace(loss, died=died)] if loss else []
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Seen:
    """What losses are told by: claims by lease and by task, events by job, steps by lease."""

    history: History
    claims: Mapping[str, Event]
    of_task: Mapping[str | None, Sequence[Event]]
    of_job: Mapping[str | None, Sequence[Event]]
    steps: Mapping[str, Sequence[tuple[str, int]]]

    @classmethod
    def of(cls, history: History) -> "_Seen":
        """Read a history once, however many losses it has."""
        claims: dict[str, Event] = {}
        of_task: dict[str | None, list[Event]] = {}
        of_job: dict[str | None, list[Event]] = {}
        steps: dict[str, list[tuple[str, int]]] = {}
        for event in history.events():
            of_job.setdefault(event.job_id, []).append(event)
            if event.type == "LEASE_CLAIMED":
                claims.setdefault(str(event.lease_id), event)
                of_task.setdefault(event.task_id, []).append(event)
        for record in history.records:
            for lease_id, at_ns in _stepped(record):
                steps.setdefault(lease_id, []).append((record.boot_id, at_ns))
        return cls(history, claims, of_task, of_job, steps)


def untold(history: History) -> tuple[str, ...]:
    """Return the faults that took a holder away and of which the history does not tell enough."""
    told, missed = {(loss.fault_id, loss.lease_id) for loss in losses(history)}, late(history)
    lost = [
        (str(receipt["fault_id"]), lease_id)
        for receipt in history.of("fault_receipt")
        if (lease_id := text(receipt.get("lost_lease_id"))) is not None
        and receipt["fault_id"] not in missed
    ]
    return tuple(
        f"{fault_id} ({lease_id})"
        for fault_id, lease_id in lost
        if (fault_id, lease_id) not in told
    )


def _loss(seen: _Seen, fault_id: str, lease_id: str, began: tuple[str, int]) -> Loss | None:
    lost = seen.claims.get(lease_id)
    if lost is None or lost.job_id is None:
        return None
    later = [e for e in seen.of_task[lost.task_id] if e.id > lost.id]
    noticed = [
        event
        for event in seen.of_job[lost.job_id]
        if event.id > lost.id
        and (event in later or (event.lease_id == lease_id and event.type in NOTICED))
    ]
    return Loss(
        fault_id=fault_id,
        lease_id=lease_id,
        job_id=lost.job_id,
        lease_s=lease_s(seen.history, lost.job_id),
        detected_s=_first(began, noticed),
        reclaimed_s=_first(began, later),
        progressed_s=_progress(seen, began, {str(event.lease_id) for event in later}),
        commit_s=_commit(seen, later[0]) if later else None,
        heard_s=_heard(seen.history, began),
        noticed_by=next((text(e.data.get("reason")) for e in noticed if e.type in NOTICED), None),
    )


def _first(began: tuple[str, int], events: list[Event]) -> float | None:
    boot_id, began_ns = began
    times = [e.mono_ns for e in events if e.boot_id == boot_id and e.mono_ns >= began_ns]
    return (min(times) - began_ns) / NS if times else None


def _heard(history: History, began: tuple[str, int]) -> float | None:
    """Return for how long everything was heard: until the last look, if nobody was silent then."""
    boot_id, began_ns = began
    looks = [
        record.t_ns
        for record in history.records
        if record.kind == "collected" and record.boot_id == boot_id and not record.data["silent"]
    ]
    return (max(looks) - began_ns) / NS if looks else None


def _commit(seen: _Seen, claim: Event) -> float | None:
    accepted = [
        event
        for event in seen.of_job[claim.job_id]
        if event.type == "TASK_COMMIT_ACCEPTED" and event.lease_id == claim.lease_id
    ]
    return _first((claim.boot_id, claim.mono_ns), accepted)


def _progress(seen: _Seen, began: tuple[str, int], leases: set[str]) -> float | None:
    boot_id, began_ns = began
    times = [
        at_ns
        for lease_id in leases
        for boot, at_ns in seen.steps.get(lease_id, ())
        if boot == boot_id and at_ns >= began_ns
    ]
    return (min(times) - began_ns) / NS if times else None


def _stepped(record: Record) -> Iterator[tuple[str, int]]:
    """Yield the leases of which a record shows a step: told, saved, or cut off in a save; and when.

    A worker that is killed soon after it took over may never have told a step.
    """
    if record.kind == "task":
        task = mapping(record.data.get("task"))
        if integer(task.get("step")) is not None:
            yield str(task.get("lease_id")), record.t_ns
    elif record.kind == "committed":
        for step in items(record.data.get("steps")):
            yield str(step.get("attempt_id")), record.t_ns
    elif record.kind == "fault_receipt":
        evidence = mapping(record.data.get("evidence"))
        if (seen_ns := integer(evidence.get("window_seen_ns"))) is not None:
            yield str(evidence.get("lease_id")), seen_ns


def lease_s(history: History, job_id: str) -> float:
    """Return the lease of a job, in seconds, as it was submitted."""
    for job in history.of("job_submitted"):
        seconds = job.get("lease_s")
        if job.get("job_id") == job_id and isinstance(seconds, int | float):
            return float(seconds)
    return 0.0
