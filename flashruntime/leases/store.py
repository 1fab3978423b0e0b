"""The port to a ledger: narrow, typed operations inside transactions, no semantics of leases."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from flashruntime.leases.checkpoint_tables import CheckpointTables
from flashruntime.leases.record import (
    ClaimQuery,
    EventRow,
    JobRow,
    LeaseRow,
    NodeRow,
    ObjectRow,
    TaskRow,
)
from flashruntime.leases.store_keeping import KeepingTransaction
from flashruntime.leases.store_spool import SpoolTransaction


class Transaction(KeepingTransaction, SpoolTransaction, CheckpointTables, Protocol):
    """Operations of one transaction; each lookup costs at most the logarithm of what is stored."""

    def add_job(self, job: JobRow, spec_json: str) -> JobRow:
        """Insert a job and return it with its `seq`."""
        ...

    def add_tasks(self, tasks: Iterable[tuple[TaskRow, str]]) -> None:
        """Insert tasks, each with its payload as JSON."""
        ...

    def job(self, job_id: str) -> JobRow | None:
        """Return a job."""
        ...

    def job_by_key(self, idempotency_key: str) -> JobRow | None:
        """Return the job that was submitted under an idempotency key."""
        ...

    def put_job(self, job: JobRow) -> None:
        """Replace a job: its state, reason, end and counts."""
        ...

    def spec_json(self, job_id: str) -> str:
        """Return the spec of an existing job."""
        ...

    def jobs_before(self, seq: int | None, limit: int) -> list[JobRow]:
        """Return jobs older than `seq` (None: all), newest first."""
        ...

    def task(self, task_id: str) -> TaskRow | None:
        """Return a task."""
        ...

    def put_task(self, task: TaskRow) -> None:
        """Replace a task."""
        ...

    def payload_json(self, task_id: str) -> str:
        """Return the payload of an existing task."""
        ...

    def tasks_after(self, job_seq: int, index: int, limit: int) -> list[TaskRow]:
        """Return tasks of a job with a greater index, in index order."""
        ...

    def queued_needs(self) -> list[str]:
        """Return the needs that PENDING tasks have, each once; costs nothing for their number."""
        ...

    def next_claimable(self, query: ClaimQuery) -> TaskRow | None:
        """Return the due task longest waiting, else the first ready one by job and index."""
        ...

    def cancel_open(self, job_seq: int) -> int:
        """Cancel each PENDING or LEASED task of a job and its open lease; clear their holders."""
        ...

    def lease(self, lease_id: str) -> LeaseRow | None:
        """Return a lease."""
        ...

    def lease_by_claim(self, node_id: str, claim_id: str) -> LeaseRow | None:
        """Return the lease that a node was given for a claim id."""
        ...

    def put_lease(self, lease: LeaseRow) -> None:
        """Insert or replace a lease."""
        ...

    def expired_leases(self, now_ns: int, limit: int) -> list[LeaseRow]:
        """Return LIVE leases with `deadline_ns` < `now_ns`, earliest first."""
        ...

    def live_leases(self, node_id: str) -> list[LeaseRow]:
        """Return the LIVE leases of a node."""
        ...

    def live_counts(self, node_id: str | None) -> dict[str, int]:
        """Return how many LIVE leases a node (None: each) has; one without any may be absent."""
        ...

    def rearm(self, now_ns: int) -> int:
        """Give LIVE leases and waiting tasks their full time from `now_ns`; count the leases."""
        ...

    def next_due_ns(self, now_ns: int) -> int | None:
        """Return the earliest deadline of a LIVE lease or later end of a task's wait."""
        ...

    def append(self, events: Sequence[EventRow]) -> None:
        """Append events; ids rise and never repeat."""
        ...

    def events_after(self, job_id: str | None, event_id: int, limit: int) -> list[EventRow]:
        """Return events of a job (None: of all) with a greater id, in order."""
        ...

    def object(self, key: str) -> ObjectRow | None:
        """Return an object."""
        ...

    def key_below(self, key: str) -> str | None:
        """Return some key that begins with `key` and a slash."""
        ...

    def put_object(self, row: ObjectRow) -> None:
        """Insert or replace an object."""
        ...

    def accepted_objects(self, job_id: str) -> list[ObjectRow]:
        """Return the accepted objects of a job by key."""
        ...

    def node(self, node_id: str) -> NodeRow | None:
        """Return a node."""
        ...

    def put_node(self, row: NodeRow) -> None:
        """Insert or replace a node."""
        ...

    def nodes(self) -> list[NodeRow]:
        """Return all nodes by id."""
        ...


class LeaseStore(Protocol):
    """A ledger for one writer: a transaction is on stable storage when its block ends."""

    def transaction(self) -> AbstractContextManager[Transaction]:
        """Open a transaction; an exception in the block undoes it. StoreUnavailable if refused."""
        ...

    def group(self, *, wait: bool = True) -> AbstractContextManager[Callable[[], bool]]:
        """Let the transactions opened in the block reach stable storage together, at its end.

        Each is still undone alone by an exception of its own. If the group cannot be kept, all
        of them are undone and the end of the block raises StoreUnavailable: answer nobody before.
        Without `wait`, it is refused at once where others use the ledger. The block is given what
        tells whether anything has changed so far.
        """
        ...

    def close(self) -> None:
        """Release the ledger."""
        ...
