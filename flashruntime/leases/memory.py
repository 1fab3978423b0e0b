"""A ledger in memory: the same port as SQLite, for tests and in-process coordinators."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from typing import TypeVar

from flashruntime.leases.memory_checkpoints import MemoryCheckpoints
from flashruntime.leases.memory_keeping import MemoryKeeping
from flashruntime.leases.memory_order import Sorted
from flashruntime.leases.memory_spool import MemorySpool
from flashruntime.leases.record import (
    ClaimQuery,
    EventRow,
    JobRow,
    LeaseRow,
    LeaseState,
    NodeRow,
    ObjectRow,
    TaskRow,
)
from flashruntime.leases.store import Transaction
from flashruntime.protocol.tasks import TaskState

K = TypeVar("K")
V = TypeVar("V")


class MemoryStore(MemoryKeeping, MemorySpool, MemoryCheckpoints):
    """Holds everything in dictionaries and ordered indexes; a failed transaction is undone."""

    def __init__(self) -> None:
        super().__init__()
        self._jobs: dict[str, JobRow] = {}
        self._specs: dict[str, str] = {}
        self._job_order: list[str | None] = []
        self._keys: dict[str, str] = {}
        self._tasks: dict[str, TaskRow] = {}
        self._payloads: dict[str, str] = {}
        self._job_tasks: dict[int, list[str]] = {}
        self._leases: dict[str, LeaseRow] = {}
        self._claims: dict[tuple[str, str], str] = {}
        self._live: dict[str, dict[str, None]] = {}
        self._objects: dict[str, ObjectRow] = {}
        self._job_objects: dict[str, dict[str, None]] = {}
        self._nodes: dict[str, NodeRow] = {}
        self._events: list[EventRow | None] = []
        self._job_events: dict[str, list[int]] = {}
        self._ready: dict[str, Sorted] = {}
        self._waiting = Sorted()
        self._deadlines = Sorted()
        self._object_keys = Sorted()
        self._undo: list[Callable[[], object]] = []
        self._open = False
        self._grouped = False

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Open a transaction; an exception in the block undoes it."""
        if self._open:
            raise RuntimeError("transactions of one store do not nest")
        mark = len(self._undo)
        self._open = True
        try:
            yield self
        except BaseException:
            self._undo_to(mark)
            raise
        finally:
            self._open = False
            if not self._grouped:
                self._undo.clear()

    @contextmanager
    def group(self, *, wait: bool = True) -> Iterator[Callable[[], bool]]:  # noqa: ARG002 (port)
        """Keep the transactions opened in the block together; an exception undoes all."""
        if self._open or self._grouped:
            raise RuntimeError("groups of one store do not nest, nor open in a transaction")
        self._grouped = True
        try:
            yield lambda: bool(self._undo)
        except BaseException:
            self._undo_to(0)
            raise
        finally:
            self._grouped = False
            self._undo.clear()

    def _undo_to(self, mark: int) -> None:
        while len(self._undo) > mark:
            self._undo.pop()()

    def close(self) -> None:
        """Nothing to release."""

    def _later_undo(self, undo: Callable[[], object]) -> None:
        if not self._open:
            raise RuntimeError("changes need an open transaction")
        self._undo.append(undo)

    def _set(self, table: dict[K, V], key: K, value: V) -> None:
        if key in table:
            old = table[key]
            self._later_undo(lambda: table.__setitem__(key, old))
        else:
            self._later_undo(lambda: table.pop(key))
        table[key] = value

    def _index(self, index: Sorted, item: tuple[int | str, ...]) -> None:
        self._later_undo(lambda: index.discard(item))
        index.add(item)

    def _unindex(self, index: Sorted, item: tuple[int | str, ...]) -> None:
        self._later_undo(lambda: index.add(item))
        index.discard(item)

    def add_job(self, job: JobRow, spec_json: str) -> JobRow:
        """Insert a job and return it with its `seq`."""
        job = replace(job, seq=len(self._job_order) + 1)
        self._set(self._jobs, job.job_id, job)
        self._set(self._specs, job.job_id, spec_json)
        if job.idempotency_key is not None:
            self._set(self._keys, job.idempotency_key, job.job_id)
        self._later_undo(self._job_order.pop)
        self._job_order.append(job.job_id)
        self._set(self._job_tasks, job.seq, [])
        return job

    def add_tasks(self, tasks: Iterable[tuple[TaskRow, str]]) -> None:
        """Insert tasks, each with its payload as JSON."""
        for task, payload_json in tasks:
            self._set(self._payloads, task.task_id, payload_json)
            ids = self._job_tasks[task.job_seq]
            self._later_undo(ids.pop)
            ids.append(task.task_id)
            self.put_task(task)

    def job(self, job_id: str) -> JobRow | None:
        """Return a job."""
        return self._jobs.get(job_id)

    def job_by_key(self, idempotency_key: str) -> JobRow | None:
        """Return the job that was submitted under an idempotency key."""
        job_id = self._keys.get(idempotency_key)
        return None if job_id is None else self._jobs[job_id]

    def put_job(self, job: JobRow) -> None:
        """Replace a job."""
        self._set(self._jobs, job.job_id, job)

    def spec_json(self, job_id: str) -> str:
        """Return the spec of an existing job."""
        return self._specs[job_id]

    def jobs_before(self, seq: int | None, limit: int) -> list[JobRow]:
        """Return jobs older than `seq`, newest first."""
        end = len(self._job_order) if seq is None else seq - 1
        newest = (self._job_order[place] for place in range(end - 1, -1, -1))
        return [self._jobs[each] for each in islice(filter(None, newest), limit)]

    def task(self, task_id: str) -> TaskRow | None:
        """Return a task."""
        return self._tasks.get(task_id)

    def put_task(self, task: TaskRow) -> None:
        """Insert or replace a task."""
        old = self._tasks.get(task.task_id)
        if old is not None:
            self._move(old, self._unindex)
        self._set(self._tasks, task.task_id, task)
        self._move(task, self._index)

    def _move(self, task: TaskRow, change: Callable[[Sorted, tuple[int | str, ...]], None]) -> None:
        if task.state is not TaskState.PENDING:
            return
        if task.not_before_ns:
            change(self._waiting, (task.not_before_ns, task.job_seq, task.index, task.task_id))
        else:
            ready = self._ready.setdefault(task.need, Sorted())
            change(ready, (task.job_seq, task.index, task.task_id))

    def payload_json(self, task_id: str) -> str:
        """Return the payload of an existing task."""
        return self._payloads[task_id]

    def tasks_after(self, job_seq: int, index: int, limit: int) -> list[TaskRow]:
        """Return tasks of a job with a greater index, in index order."""
        ids = self._job_tasks.get(job_seq, [])[index + 1 : index + 1 + limit]
        return [self._tasks[task_id] for task_id in ids]

    def queued_needs(self) -> list[str]:
        """Return the needs that PENDING tasks have, each once."""
        waiting = {self._tasks[str(item[-1])].need for item in self._waiting.items}
        return sorted(waiting | {need for need, ready in self._ready.items() if ready.items})

    def next_claimable(self, query: ClaimQuery) -> TaskRow | None:
        """Return the due task longest waiting, else the first ready one by job and index."""
        for item in self._waiting.items:
            task = self._tasks[str(item[-1])]
            if task.not_before_ns > query.now_ns:
                break
            spared = query.others_live and task.avoid_node == query.node_id
            if spared and task.not_before_ns > query.now_ns - query.patience_ns:
                continue
            if query.job_seq in {None, task.job_seq} and task.need in query.needs:
                return task
        first = [self._first_ready(need, query.job_seq) for need in query.needs]
        return min(filter(None, first), key=lambda task: task.ready_order, default=None)

    def _first_ready(self, need: str, job_seq: int | None) -> TaskRow | None:
        ready = self._ready.get(need, Sorted()).items
        at = 0 if job_seq is None else bisect_left(ready, (job_seq,))
        if at == len(ready) or (job_seq is not None and ready[at][0] != job_seq):
            return None
        return self._tasks[str(ready[at][-1])]

    def cancel_open(self, job_seq: int) -> int:
        """Cancel each PENDING or LEASED task of a job and its open lease."""
        count = 0
        for task_id in self._job_tasks.get(job_seq, []):
            task = self._tasks[task_id]
            if task.state.terminal:
                continue
            if task.holder is not None:
                self.put_lease(replace(self._leases[task.holder], state=LeaseState.CANCELLED))
            self.put_task(replace(task, state=TaskState.CANCELLED, holder=None))
            count += 1
        return count

    def lease(self, lease_id: str) -> LeaseRow | None:
        """Return a lease."""
        return self._leases.get(lease_id)

    def lease_by_claim(self, node_id: str, claim_id: str) -> LeaseRow | None:
        """Return the lease that a node was given for a claim id."""
        lease_id = self._claims.get((node_id, claim_id))
        return None if lease_id is None else self._leases[lease_id]

    def put_lease(self, lease: LeaseRow) -> None:
        """Insert or replace a lease."""
        old = self._leases.get(lease.lease_id)
        live = self._live.setdefault(lease.node_id, {})
        if old is not None and old.state is LeaseState.LIVE:
            self._unindex(self._deadlines, (old.deadline_ns, old.lease_id))
            self._later_undo(lambda: live.__setitem__(lease.lease_id, None))
            live.pop(lease.lease_id)
        self._set(self._leases, lease.lease_id, lease)
        if lease.claim_id is not None:
            self._set(self._claims, (lease.node_id, lease.claim_id), lease.lease_id)
        if lease.state is LeaseState.LIVE:
            self._index(self._deadlines, (lease.deadline_ns, lease.lease_id))
            self._set(live, lease.lease_id, None)

    def expired_leases(self, now_ns: int, limit: int) -> list[LeaseRow]:
        """Return LIVE leases whose deadline has passed, earliest first."""
        end = min(limit, bisect_left(self._deadlines.items, (now_ns,)))
        return [self._leases[str(item[-1])] for item in self._deadlines.items[:end]]

    def live_leases(self, node_id: str) -> list[LeaseRow]:
        """Return the LIVE leases of a node."""
        return [self._leases[lease_id] for lease_id in self._live.get(node_id, {})]

    def live_counts(self, node_id: str | None) -> dict[str, int]:
        """Return how many LIVE leases a node (None: each) has."""
        nodes = self._live if node_id is None else {node_id: self._live.get(node_id, {})}
        return {node: len(live) for node, live in nodes.items()}

    def rearm(self, now_ns: int) -> int:
        """Give LIVE leases and waiting tasks their full time from `now_ns`."""
        live = [self._leases[str(item[-1])] for item in self._deadlines.items]
        for lease in live:
            self.put_lease(replace(lease, deadline_ns=now_ns + lease.lease_ns))
        for task in [self._tasks[str(item[-1])] for item in self._waiting.items]:
            self.put_task(replace(task, not_before_ns=now_ns + task.backoff_ns))
        return len(live)

    def next_due_ns(self, now_ns: int) -> int | None:
        """Return the earliest deadline of a LIVE lease or later end of a task's wait."""
        due = [int(item[0]) for item in self._deadlines.items[:1]]
        at = bisect_right(self._waiting.items, (now_ns + 1,))
        due += [int(item[0]) for item in self._waiting.items[at : at + 1]]
        return min(due, default=None)

    def append(self, events: Sequence[EventRow]) -> None:
        """Append events; ids rise and never repeat."""
        for draft in events:
            row = replace(draft, event_id=len(self._events) + 1)
            self._later_undo(self._events.pop)
            self._events.append(row)
            if row.job_id is not None:
                of_job = self._job_events.setdefault(row.job_id, [])
                self._later_undo(of_job.pop)
                of_job.append(row.event_id)

    def events_after(self, job_id: str | None, event_id: int, limit: int) -> list[EventRow]:
        """Return events with a greater id, in order."""
        ids: Sequence[int] = range(1, len(self._events) + 1)
        if job_id is not None:
            ids = self._job_events.get(job_id, [])
        at = bisect_right(ids, event_id)
        later = (self._events[ids[place] - 1] for place in range(at, len(ids)))
        return list(islice(filter(None, later), limit))

    def object(self, key: str) -> ObjectRow | None:
        """Return an object."""
        return self._objects.get(key)

    def key_below(self, key: str) -> str | None:
        """Return some key that begins with `key` and a slash."""
        keys = self._object_keys.items
        at = bisect_left(keys, (f"{key}/",))
        if at < len(keys) and str(keys[at][0]).startswith(f"{key}/"):
            return str(keys[at][0])
        return None

    def put_object(self, row: ObjectRow) -> None:
        """Insert or replace an object."""
        if row.key not in self._objects:
            self._index(self._object_keys, (row.key,))
        self._set(self._objects, row.key, row)
        if row.accepted and row.job_id is not None:
            self._set(self._job_objects.setdefault(row.job_id, {}), row.key, None)

    def _forget_key(self, key: str) -> None:
        self._unindex(self._object_keys, (key,))

    def accepted_objects(self, job_id: str) -> list[ObjectRow]:
        """Return the accepted objects of a job by key."""
        return [self._objects[key] for key in sorted(self._job_objects.get(job_id, {}))]

    def node(self, node_id: str) -> NodeRow | None:
        """Return a node."""
        return self._nodes.get(node_id)

    def put_node(self, row: NodeRow) -> None:
        """Insert or replace a node."""
        self._set(self._nodes, row.node_id, row)

    def nodes(self) -> list[NodeRow]:
        """Return all nodes by id."""
        return [self._nodes[node_id] for node_id in sorted(self._nodes)]
