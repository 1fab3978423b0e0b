"""The operations of a transaction in SQL; each is answered by an index."""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from operator import attrgetter

from flashruntime.leases import sqlite_rows as rows
from flashruntime.leases.record import (
    ClaimQuery,
    EventRow,
    JobRow,
    LeaseRow,
    NodeRow,
    ObjectRow,
    TaskRow,
)
from flashruntime.leases.sqlite_checkpoints import SqliteCheckpoints
from flashruntime.leases.sqlite_keeping import SqliteKeeping
from flashruntime.leases.sqlite_rows import Values
from flashruntime.leases.sqlite_spool import SqliteSpool

_UPDATE_JOB = """UPDATE jobs SET name=?, state=?, reason=?, created_at=?, finished_at=?,
    lease_ns=?, max_errors=?, output_prefix=?, idempotency_key=?, request_digest=?,
    pending=?, leased=?, completed=?, failed=?, cancelled=?, need=? WHERE job_id=?"""
_UPDATE_TASK = """UPDATE tasks SET state=?, lease_id=?, holder=?, attempts=?, errors=?, losses=?,
    loss_run=?, best_step=?, not_before_ns=?, backoff_ns=?, avoid_node=?, last_failure=?,
    reason=?, result=?, same_run=?, need=?, suspect_step=?, failed_resume=?, high_step=?,
    recomputed=? WHERE task_id=?"""
_PUT_LEASE = """INSERT INTO leases VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)
    ON CONFLICT (lease_id) DO UPDATE SET state=excluded.state, deadline_ns=excluded.deadline_ns,
    step=excluded.step, metrics=excluded.metrics, refused=excluded.refused,
    decision=excluded.decision, resumed_from=excluded.resumed_from,
    checkpoint_step=excluded.checkpoint_step"""
_PUT_OBJECT = """INSERT INTO objects VALUES (?,?,?,?,?,?,?)
    ON CONFLICT (key) DO UPDATE SET sha256=excluded.sha256, size_bytes=excluded.size_bytes,
    accepted=excluded.accepted, job_id=excluded.job_id, task_id=excluded.task_id,
    path=excluded.path"""
_DUE = """SELECT * FROM tasks WHERE state='PENDING' AND not_before_ns>0 AND not_before_ns<=:now
    AND need=:need AND (NOT :others OR avoid_node IS NOT :node OR not_before_ns<=:now-:patience)"""
_READY = "SELECT * FROM tasks WHERE state='PENDING' AND not_before_ns=0 AND need=:need"
# From each need to the next one, so that the number of tasks between them costs nothing.
_NEXT_NEED = "SELECT min(need) FROM tasks WHERE state='PENDING' AND not_before_ns{} AND need{}?"
_ONE_JOB = " AND job_seq=:job_seq"
_WAITING_ORDER: Callable[[TaskRow], tuple[int, ...]] = attrgetter("waiting_order")
_READY_ORDER: Callable[[TaskRow], tuple[int, ...]] = attrgetter("ready_order")
_CANCEL_LEASES = """UPDATE leases SET state='CANCELLED' WHERE lease_id IN (
    SELECT holder FROM tasks WHERE job_seq=? AND state IN ('PENDING','LEASED')
    AND holder IS NOT NULL)"""
_CANCEL_TASKS = """UPDATE tasks SET state='CANCELLED', holder=NULL
    WHERE job_seq=? AND state IN ('PENDING','LEASED')"""
_REARM_LEASES = "UPDATE leases SET deadline_ns=?+lease_ns WHERE state='LIVE'"
_REARM_TASKS = """UPDATE tasks SET not_before_ns=?+backoff_ns
    WHERE state='PENDING' AND not_before_ns>0"""


class SqliteTransaction(SqliteKeeping, SqliteSpool, SqliteCheckpoints):
    """Runs the operations of the port on an open transaction of one connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._db = connection

    def _one(self, sql: str, *values: object) -> Values | None:
        found: Values | None = self._db.execute(sql, values).fetchone()
        return found

    def add_job(self, job: JobRow, spec_json: str) -> JobRow:
        """Insert a job and return it with its `seq`."""
        values = rows.job_values(job)
        marks = ",".join("?" * len(values))
        cursor = self._db.execute(f"INSERT INTO jobs VALUES (NULL,{marks})", values)  # noqa: S608 (only question marks)
        self._db.execute("INSERT INTO specs VALUES (?,?)", (job.job_id, spec_json))
        return replace(job, seq=cursor.lastrowid or 0)

    def add_tasks(self, tasks: Iterable[tuple[TaskRow, str]]) -> None:
        """Insert tasks, each with its payload as JSON."""
        added = list(tasks)
        self._db.executemany(
            "INSERT INTO tasks VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
            [rows.task_values(task) for task, _ in added],
        )
        self._db.executemany(
            "INSERT INTO payloads VALUES (?,?)",
            [(task.task_id, payload_json) for task, payload_json in added],
        )

    def job(self, job_id: str) -> JobRow | None:
        """Return a job."""
        found = self._one("SELECT * FROM jobs WHERE job_id=?", job_id)
        return None if found is None else rows.job_row(found)

    def job_by_key(self, idempotency_key: str) -> JobRow | None:
        """Return the job that was submitted under an idempotency key."""
        found = self._one("SELECT * FROM jobs WHERE idempotency_key=?", idempotency_key)
        return None if found is None else rows.job_row(found)

    def put_job(self, job: JobRow) -> None:
        """Replace a job."""
        job_id, *values = rows.job_values(job)
        self._db.execute(_UPDATE_JOB, (*values, job_id))

    def spec_json(self, job_id: str) -> str:
        """Return the spec of an existing job."""
        return self._text("SELECT spec FROM specs WHERE job_id=?", job_id)

    def jobs_before(self, seq: int | None, limit: int) -> list[JobRow]:
        """Return jobs older than `seq`, newest first."""
        sql = "SELECT * FROM jobs WHERE seq<? ORDER BY seq DESC LIMIT ?"
        values = (2**63 - 1 if seq is None else seq, limit)
        return [rows.job_row(found) for found in self._db.execute(sql, values)]

    def task(self, task_id: str) -> TaskRow | None:
        """Return a task."""
        found = self._one("SELECT * FROM tasks WHERE task_id=?", task_id)
        return None if found is None else rows.task_row(found)

    def put_task(self, task: TaskRow) -> None:
        """Replace a task."""
        task_id, _, _, _, *values = rows.task_values(task)
        self._db.execute(_UPDATE_TASK, (*values, task_id))

    def payload_json(self, task_id: str) -> str:
        """Return the payload of an existing task."""
        return self._text("SELECT payload FROM payloads WHERE task_id=?", task_id)

    def _text(self, sql: str, key: str) -> str:
        found = self._one(sql, key)
        if found is None:
            raise KeyError(key)
        return str(found[0])

    def tasks_after(self, job_seq: int, index: int, limit: int) -> list[TaskRow]:
        """Return tasks of a job with a greater index, in index order."""
        sql = "SELECT * FROM tasks WHERE job_seq=? AND idx>? ORDER BY idx LIMIT ?"
        found = self._db.execute(sql, (job_seq, index, limit))
        return [rows.task_row(values) for values in found]

    def queued_needs(self) -> list[str]:
        """Return the needs that PENDING tasks have, each once."""
        return sorted({need for wait in ("=0", ">0") for need in self._needs(wait)})

    def _needs(self, wait: str) -> Iterator[str]:
        found = self._one(_NEXT_NEED.format(wait, ">="), "")
        while found is not None and found[0] is not None:
            yield str(found[0])
            found = self._one(_NEXT_NEED.format(wait, ">"), found[0])

    def next_claimable(self, query: ClaimQuery) -> TaskRow | None:
        """Return the due task longest waiting, else the first ready one by job and index."""
        named = {
            "now": query.now_ns,
            "node": query.node_id,
            "others": query.others_live,
            "patience": query.patience_ns,
            "job_seq": query.job_seq,
        }
        one_job = "" if query.job_seq is None else _ONE_JOB
        due = f"{_DUE}{one_job} ORDER BY not_before_ns, job_seq, idx LIMIT 1"
        ready = f"{_READY}{one_job} ORDER BY job_seq, idx LIMIT 1"
        for sql, order in ((due, _WAITING_ORDER), (ready, _READY_ORDER)):
            found = [
                rows.task_row(values)
                for need in query.needs
                for values in self._db.execute(sql, {**named, "need": need})
            ]
            if found:
                return min(found, key=order)
        return None

    def cancel_open(self, job_seq: int) -> int:
        """Cancel each PENDING or LEASED task of a job and its open lease."""
        self._db.execute(_CANCEL_LEASES, (job_seq,))
        return self._db.execute(_CANCEL_TASKS, (job_seq,)).rowcount

    def lease(self, lease_id: str) -> LeaseRow | None:
        """Return a lease."""
        found = self._one("SELECT * FROM leases WHERE lease_id=?", lease_id)
        return None if found is None else rows.lease_row(found)

    def lease_by_claim(self, node_id: str, claim_id: str) -> LeaseRow | None:
        """Return the lease that a node was given for a claim id."""
        sql = "SELECT * FROM leases WHERE node_id=? AND claim_id=?"
        found = self._one(sql, node_id, claim_id)
        return None if found is None else rows.lease_row(found)

    def put_lease(self, lease: LeaseRow) -> None:
        """Insert or replace a lease."""
        self._db.execute(_PUT_LEASE, rows.lease_values(lease))

    def expired_leases(self, now_ns: int, limit: int) -> list[LeaseRow]:
        """Return LIVE leases whose deadline has passed, earliest first."""
        sql = """SELECT * FROM leases WHERE state='LIVE' AND deadline_ns<?
            ORDER BY deadline_ns, lease_id LIMIT ?"""
        return [rows.lease_row(found) for found in self._db.execute(sql, (now_ns, limit))]

    def live_leases(self, node_id: str) -> list[LeaseRow]:
        """Return the LIVE leases of a node."""
        sql = "SELECT * FROM leases WHERE state='LIVE' AND node_id=?"
        return [rows.lease_row(found) for found in self._db.execute(sql, (node_id,))]

    def live_counts(self, node_id: str | None) -> dict[str, int]:
        """Return how many LIVE leases a node (None: each) has."""
        one = "" if node_id is None else "AND node_id=:node"
        sql = f"SELECT node_id, count(*) FROM leases WHERE state='LIVE' {one} GROUP BY node_id"  # noqa: S608 (constants)
        return dict(self._db.execute(sql, {"node": node_id}).fetchall())

    def rearm(self, now_ns: int) -> int:
        """Give LIVE leases and waiting tasks their full time from `now_ns`."""
        self._db.execute(_REARM_TASKS, (now_ns,))
        return self._db.execute(_REARM_LEASES, (now_ns,)).rowcount

    def next_due_ns(self, now_ns: int) -> int | None:
        """Return the earliest deadline of a LIVE lease or later end of a task's wait."""
        lease = self._one("SELECT min(deadline_ns) FROM leases WHERE state='LIVE'")
        wait = self._one(
            """SELECT min(not_before_ns) FROM tasks
            WHERE state='PENDING' AND not_before_ns>0 AND not_before_ns>?""",
            now_ns,
        )
        due = [int(found[0]) for found in (lease, wait) if found and found[0] is not None]
        return min(due, default=None)

    def append(self, events: Sequence[EventRow]) -> None:
        """Append events; ids rise and never repeat."""
        self._db.executemany(
            "INSERT INTO events VALUES (NULL,?,?,?,?,?,?,?,?)",
            map(rows.event_values, events),
        )

    def events_after(self, job_id: str | None, event_id: int, limit: int) -> list[EventRow]:
        """Return events with a greater id, in order."""
        of_job = "" if job_id is None else "job_id=:job_id AND "
        sql = f"SELECT * FROM events WHERE {of_job}event_id>:after ORDER BY event_id LIMIT :limit"  # noqa: S608 (constants)
        named = {"job_id": job_id, "after": min(event_id, 2**63 - 1), "limit": limit}
        return [rows.event_row(found) for found in self._db.execute(sql, named)]

    def object(self, key: str) -> ObjectRow | None:
        """Return an object."""
        found = self._one("SELECT * FROM objects WHERE key=?", key)
        return None if found is None else rows.object_row(found)

    def key_below(self, key: str) -> str | None:
        """Return some key that begins with `key` and a slash."""
        sql = "SELECT key FROM objects WHERE key>=? AND key<? LIMIT 1"
        found = self._one(sql, f"{key}/", f"{key}0")
        return None if found is None else str(found[0])

    def put_object(self, row: ObjectRow) -> None:
        """Insert or replace an object."""
        self._db.execute(_PUT_OBJECT, rows.object_values(row))

    def accepted_objects(self, job_id: str) -> list[ObjectRow]:
        """Return the accepted objects of a job by key."""
        sql = "SELECT * FROM objects WHERE accepted=1 AND job_id=? ORDER BY key"
        return [rows.object_row(found) for found in self._db.execute(sql, (job_id,))]

    def node(self, node_id: str) -> NodeRow | None:
        """Return a node."""
        found = self._one("SELECT * FROM nodes WHERE node_id=?", node_id)
        return None if found is None else rows.node_row(found)

    def put_node(self, row: NodeRow) -> None:
        """Insert or replace a node."""
        self._db.execute("INSERT OR REPLACE INTO nodes VALUES (?,?,?,?,?,?)", rows.node_values(row))

    def nodes(self) -> list[NodeRow]:
        """Return all nodes by id."""
        found = self._db.execute("SELECT * FROM nodes ORDER BY node_id")
        return [rows.node_row(values) for values in found]
