"""Retention, quotas and the care of blobs in SQL; each operation is answered by an index."""

import sqlite3
from collections.abc import Iterable
from datetime import datetime

from flashruntime.leases import sqlite_rows as rows
from flashruntime.leases.record import JobRow, ObjectRow
from flashruntime.leases.store_keeping import Removal

_CLOSED = """SELECT * FROM jobs WHERE finished_at IS NOT NULL AND finished_at<?
    AND (finished_at, seq)>(?,?) ORDER BY finished_at, seq LIMIT ?"""
_ADD_BYTES = """INSERT INTO job_usage VALUES (?,?)
    ON CONFLICT (job_id) DO UPDATE SET stored_bytes=stored_bytes+excluded.stored_bytes"""
_BELOW = "SELECT * FROM objects WHERE key>? AND key<? ORDER BY key LIMIT ?"
_DIGESTS = """SELECT sha256, max(size_bytes) FROM objects WHERE sha256>?
    GROUP BY sha256 ORDER BY sha256 LIMIT ?"""
_USERS = """SELECT job_id FROM job_inputs CROSS JOIN jobs ON seq=job_seq
    WHERE key=? ORDER BY job_seq LIMIT ?"""
_REMOVAL = "SELECT job_seq, job_id, output_prefix FROM removals"


class SqliteKeeping:
    """Runs these operations on an open transaction of one connection."""

    _db: sqlite3.Connection

    def closed_jobs(
        self, after: tuple[datetime, int] | None, before: datetime, limit: int
    ) -> list[JobRow]:
        """Return jobs that ended before an instant, earliest first, beyond (ended, seq)."""
        at, seq = ("", 0) if after is None else (after[0].isoformat(), after[1])
        found = self._db.execute(_CLOSED, (before.isoformat(), at, seq, limit))
        return [rows.job_row(values) for values in found]

    def retire_job(self, job: JobRow, at: datetime) -> None:
        """Make a job invisible, its idempotency key too; its rows wait for their deletion."""
        for table in ("jobs", "specs", "job_usage"):
            self._db.execute(f"DELETE FROM {table} WHERE job_id=?", (job.job_id,))  # noqa: S608 (constants)
        values = (job.seq, job.job_id, job.output_prefix, at.isoformat())
        self._db.execute("INSERT INTO removals VALUES (?,?,?,?,0)", values)

    def _removal(self, condition: str, *values: object) -> Removal | None:
        found = self._db.execute(f"{_REMOVAL} {condition}", values).fetchone()
        return None if found is None else Removal(*found)

    def removal(self, job_id: str) -> Removal | None:
        """Return the removal of a job, also one that is done and not yet forgotten."""
        return self._removal("WHERE job_id=?", job_id)

    def next_removal(self) -> Removal | None:
        """Return the oldest removal that is not done."""
        return self._removal("WHERE done=0 ORDER BY job_seq LIMIT 1")

    def end_removal(self, job_seq: int) -> None:
        """Mark a removal as done."""
        self._db.execute("UPDATE removals SET done=1 WHERE job_seq=?", (job_seq,))

    def forget_removals(self, before: datetime) -> int:
        """Delete the records of removals that were done and begun before an instant."""
        sql = "DELETE FROM removals WHERE done=1 AND removed_at<?"
        return self._db.execute(sql, (before.isoformat(),)).rowcount

    def delete_tasks(self, job_seq: int, limit: int) -> int:
        """Delete tasks of a job with their payloads; return how many."""
        sql = "SELECT task_id FROM tasks WHERE job_seq=? ORDER BY idx LIMIT ?"
        found = self._db.execute(sql, (job_seq, limit)).fetchall()
        for table in ("payloads", "tasks"):
            self._db.executemany(f"DELETE FROM {table} WHERE task_id=?", found)  # noqa: S608 (constants)
        return len(found)

    def delete_events(self, job_id: str | None, before: datetime | None, limit: int) -> int:
        """Delete a job's oldest events and the leases that they name; return how many events."""
        sql = (
            "SELECT event_id, lease_id, at FROM events WHERE job_id IS ? ORDER BY event_id LIMIT ?"
        )
        found = self._db.execute(sql, (job_id, limit)).fetchall()
        if before is not None:
            found = [row for row in found if row[2] < before.isoformat()]
        leases = {lease_id for _, lease_id, _ in found if lease_id is not None}
        self._db.executemany("DELETE FROM leases WHERE lease_id=?", [(each,) for each in leases])
        self._db.executemany("DELETE FROM events WHERE event_id=?", [row[:1] for row in found])
        return len(found)

    def add_inputs(self, job_seq: int, keys: Iterable[str]) -> None:
        """Record which objects a job takes as inputs."""
        named = [(key, job_seq) for key in keys]
        self._db.executemany("INSERT OR IGNORE INTO job_inputs VALUES (?,?)", named)

    def delete_inputs(self, job_seq: int, limit: int) -> list[str]:
        """Forget inputs of a job; return their keys."""
        sql = "SELECT key FROM job_inputs WHERE job_seq=? LIMIT ?"
        keys = [str(key) for (key,) in self._db.execute(sql, (job_seq, limit))]
        named = [(key, job_seq) for key in keys]
        self._db.executemany("DELETE FROM job_inputs WHERE key=? AND job_seq=?", named)
        return keys

    def jobs_with_input(self, key: str, limit: int) -> list[str]:
        """Return ids of visible jobs that take an object as input."""
        return [str(job_id) for (job_id,) in self._db.execute(_USERS, (key, limit))]

    def objects_below(self, prefix: str, after: str, limit: int) -> list[ObjectRow]:
        """Return objects whose keys begin with `prefix` and a slash, by key, beyond `after`."""
        found = self._db.execute(_BELOW, (max(after, f"{prefix}/"), f"{prefix}0", limit))
        return [rows.object_row(values) for values in found]

    def objects_with(self, sha256: str, limit: int) -> list[ObjectRow]:
        """Return objects that consist of these bytes, by key."""
        sql = "SELECT * FROM objects WHERE sha256=? ORDER BY key LIMIT ?"
        return [rows.object_row(values) for values in self._db.execute(sql, (sha256, limit))]

    def digests_after(self, sha256: str, limit: int) -> list[tuple[str, int]]:
        """Return digests and sizes of what objects consist of, in order, beyond `sha256`."""
        return self._db.execute(_DIGESTS, (sha256, limit)).fetchall()

    def delete_object(self, key: str) -> None:
        """Delete an object that is there."""
        self._db.execute("DELETE FROM objects WHERE key=?", (key,))

    def stored_bytes(self, job_id: str) -> int:
        """Return the bytes that a job's objects have in all."""
        sql = "SELECT stored_bytes FROM job_usage WHERE job_id=?"
        found = self._db.execute(sql, (job_id,)).fetchone()
        return 0 if found is None else int(found[0])

    def add_stored_bytes(self, job_id: str, size_bytes: int) -> None:
        """Change the bytes that a job's objects have in all."""
        self._db.execute(_ADD_BYTES, (job_id, size_bytes))

    def put_damage(self, sha256: str, at: datetime, reason: str) -> None:
        """Record that the bytes of a digest are damaged."""
        values = (sha256, at.isoformat(), reason)
        self._db.execute("INSERT OR REPLACE INTO damaged VALUES (?,?,?)", values)

    def damage(self, sha256: str) -> str | None:
        """Return why the bytes of a digest cannot be used, None if nothing is known."""
        sql = "SELECT reason FROM damaged WHERE sha256=?"
        found = self._db.execute(sql, (sha256,)).fetchone()
        return None if found is None else str(found[0])

    def heal(self, sha256: str) -> bool:
        """Forget that the bytes of a digest are damaged; return whether they were."""
        return self._db.execute("DELETE FROM damaged WHERE sha256=?", (sha256,)).rowcount > 0

    def damaged_digests(self, limit: int) -> list[str]:
        """Return digests whose bytes are damaged."""
        sql = "SELECT sha256 FROM damaged ORDER BY sha256 LIMIT ?"
        return [str(sha256) for (sha256,) in self._db.execute(sql, (limit,))]

    def mark(self, name: str) -> str | None:
        """Return how far a chore has come."""
        found = self._db.execute("SELECT value FROM marks WHERE name=?", (name,)).fetchone()
        return None if found is None else str(found[0])

    def put_mark(self, name: str, value: str) -> None:
        """Record how far a chore has come."""
        self._db.execute("INSERT OR REPLACE INTO marks VALUES (?,?)", (name, value))

    def delete_node(self, node_id: str) -> None:
        """Delete a node that is there."""
        self._db.execute("DELETE FROM nodes WHERE node_id=?", (node_id,))
