"""Retention, quotas and the care of blobs in memory: the same port as in SQL."""

from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial
from itertools import islice
from typing import TypeVar

from flashruntime.leases.record import (
    EventRow,
    JobRow,
    LeaseRow,
    NodeRow,
    ObjectRow,
    TaskRow,
)
from flashruntime.leases.store_keeping import Removal

K = TypeVar("K")
V = TypeVar("V")


class MemoryKeeping:
    """These operations on the dictionaries of a store in memory; they walk what they look for."""

    _jobs: dict[str, JobRow]
    _specs: dict[str, str]
    _job_order: list[str | None]
    _keys: dict[str, str]
    _tasks: dict[str, TaskRow]
    _payloads: dict[str, str]
    _job_tasks: dict[int, list[str]]
    _leases: dict[str, LeaseRow]
    _claims: dict[tuple[str, str], str]
    _objects: dict[str, ObjectRow]
    _job_objects: dict[str, dict[str, None]]
    _nodes: dict[str, NodeRow]
    _events: list[EventRow | None]
    _job_events: dict[str, list[int]]
    _later_undo: Callable[[Callable[[], object]], None]
    _forget_key: Callable[[str], None]

    def __init__(self) -> None:
        super().__init__()
        self._removals: dict[int, tuple[Removal, datetime, bool]] = {}
        self._inputs: dict[tuple[str, int], None] = {}
        self._stored: dict[str, int] = {}
        self._damaged: dict[str, tuple[datetime, str]] = {}
        self._marks: dict[str, str] = {}

    def _keep(self, table: dict[K, V], key: K, value: V) -> None:
        if key in table:
            old = table[key]
            self._later_undo(lambda: table.__setitem__(key, old))
        else:
            self._later_undo(lambda: table.pop(key))
        table[key] = value

    def _drop(self, table: dict[K, V], key: K) -> bool:
        if key not in table:
            return False
        old = table.pop(key)
        self._later_undo(lambda: table.__setitem__(key, old))
        return True

    def closed_jobs(
        self, after: tuple[datetime, int] | None, before: datetime, limit: int
    ) -> list[JobRow]:
        """Return jobs that ended before an instant, earliest first, beyond (ended, seq)."""
        ended = [
            (job.finished_at, job.seq, job)
            for job in self._jobs.values()
            if job.finished_at is not None and job.finished_at < before
        ]
        ended.sort(key=lambda each: each[:2])
        return [job for at, seq, job in ended if after is None or (at, seq) > after][:limit]

    def retire_job(self, job: JobRow, at: datetime) -> None:
        """Make a job invisible, its idempotency key too; its rows wait for their deletion."""
        self._drop(self._jobs, job.job_id)
        self._drop(self._specs, job.job_id)
        self._drop(self._stored, job.job_id)
        if job.idempotency_key is not None:
            self._drop(self._keys, job.idempotency_key)
        order, place = self._job_order, job.seq - 1
        self._later_undo(lambda: order.__setitem__(place, job.job_id))
        order[place] = None
        removal = Removal(job.seq, job.job_id, job.output_prefix)
        self._keep(self._removals, job.seq, (removal, at, False))

    def removal(self, job_id: str) -> Removal | None:
        """Return the removal of a job, also one that is done and not yet forgotten."""
        found = (each for each, _, _ in self._removals.values() if each.job_id == job_id)
        return next(found, None)

    def next_removal(self) -> Removal | None:
        """Return the oldest removal that is not done."""
        left = (self._removals[seq] for seq in sorted(self._removals))
        return next((removal for removal, _, done in left if not done), None)

    def end_removal(self, job_seq: int) -> None:
        """Mark a removal as done."""
        removal, at, _ = self._removals[job_seq]
        self._keep(self._removals, job_seq, (removal, at, True))

    def forget_removals(self, before: datetime) -> int:
        """Delete the records of removals that were done and begun before an instant."""
        old = [seq for seq, (_, at, done) in self._removals.items() if done and at < before]
        return sum(self._drop(self._removals, seq) for seq in old)

    def delete_tasks(self, job_seq: int, limit: int) -> int:
        """Delete tasks of a job with their payloads; return how many."""
        ids = self._job_tasks.get(job_seq, [])
        self._keep(self._job_tasks, job_seq, ids[limit:])
        for task_id in ids[:limit]:
            self._drop(self._tasks, task_id)
            self._drop(self._payloads, task_id)
        return len(ids[:limit])

    def delete_events(self, job_id: str | None, before: datetime | None, limit: int) -> int:
        """Delete a job's oldest events and the leases that they name; return how many events."""
        oldest = islice((row for row in self._events if row and row.job_id == job_id), limit)
        found = [row for row in oldest if before is None or row.at < before]
        for row in found:
            self._later_undo(partial(self._events.__setitem__, row.event_id - 1, row))
            self._events[row.event_id - 1] = None
            lease = self._leases.get(row.lease_id or "")
            if lease is not None:
                self._drop(self._leases, lease.lease_id)
                self._drop(self._claims, (lease.node_id, lease.claim_id or ""))
        if job_id is not None:
            left = self._job_events.get(job_id, [])[len(found) :]
            self._keep(self._job_events, job_id, left)
        return len(found)

    def add_inputs(self, job_seq: int, keys: Iterable[str]) -> None:
        """Record which objects a job takes as inputs."""
        for key in keys:
            self._keep(self._inputs, (key, job_seq), None)

    def delete_inputs(self, job_seq: int, limit: int) -> list[str]:
        """Forget inputs of a job; return their keys."""
        keys = [key for key, seq in self._inputs if seq == job_seq][:limit]
        for key in keys:
            self._drop(self._inputs, (key, job_seq))
        return keys

    def jobs_with_input(self, key: str, limit: int) -> list[str]:
        """Return ids of visible jobs that take an object as input."""
        seqs = sorted(seq for name, seq in self._inputs if name == key)
        found = (self._job_order[seq - 1] for seq in seqs)
        return [job_id for job_id in found if job_id is not None][:limit]

    def objects_below(self, prefix: str, after: str, limit: int) -> list[ObjectRow]:
        """Return objects whose keys begin with `prefix` and a slash, by key, beyond `after`."""
        below = (key for key in sorted(self._objects) if key.startswith(f"{prefix}/"))
        return [self._objects[key] for key in islice((k for k in below if k > after), limit)]

    def objects_with(self, sha256: str, limit: int) -> list[ObjectRow]:
        """Return objects that consist of these bytes, by key."""
        found = [row for row in self._objects.values() if row.sha256 == sha256]
        return sorted(found, key=lambda row: row.key)[:limit]

    def digests_after(self, sha256: str, limit: int) -> list[tuple[str, int]]:
        """Return digests and sizes of what objects consist of, in order, beyond `sha256`."""
        sizes = {row.sha256: row.size_bytes for row in self._objects.values()}
        return sorted(each for each in sizes.items() if each[0] > sha256)[:limit]

    def delete_object(self, key: str) -> None:
        """Delete an object that is there."""
        row = self._objects[key]
        self._drop(self._objects, key)
        self._forget_key(key)
        if row.accepted and row.job_id is not None:
            self._drop(self._job_objects[row.job_id], key)

    def stored_bytes(self, job_id: str) -> int:
        """Return the bytes that a job's objects have in all."""
        return self._stored.get(job_id, 0)

    def add_stored_bytes(self, job_id: str, size_bytes: int) -> None:
        """Change the bytes that a job's objects have in all."""
        self._keep(self._stored, job_id, self._stored.get(job_id, 0) + size_bytes)

    def put_damage(self, sha256: str, at: datetime, reason: str) -> None:
        """Record that the bytes of a digest are damaged."""
        self._keep(self._damaged, sha256, (at, reason))

    def damage(self, sha256: str) -> str | None:
        """Return why the bytes of a digest cannot be used, None if nothing is known."""
        found = self._damaged.get(sha256)
        return None if found is None else found[1]

    def heal(self, sha256: str) -> bool:
        """Forget that the bytes of a digest are damaged; return whether they were."""
        return self._drop(self._damaged, sha256)

    def damaged_digests(self, limit: int) -> list[str]:
        """Return digests whose bytes are damaged."""
        return sorted(self._damaged)[:limit]

    def mark(self, name: str) -> str | None:
        """Return how far a chore has come."""
        return self._marks.get(name)

    def put_mark(self, name: str, value: str) -> None:
        """Record how far a chore has come."""
        self._keep(self._marks, name, value)

    def delete_node(self, node_id: str) -> None:
        """Delete a node that is there."""
        self._drop(self._nodes, node_id)
