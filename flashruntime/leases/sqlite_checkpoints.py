"""The operations on checkpoints in SQL; each is answered by an index."""

import sqlite3
from collections.abc import Sequence
from datetime import datetime

from flashruntime.leases.checkpoint_tables import CheckpointRow, SuccessionRow
from flashruntime.leases.sqlite_rows import Values
from flashruntime.protocol.checkpoints import PartSize

CHECKPOINT_TABLES = (
    """CREATE TABLE checkpoints (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    task_id TEXT NOT NULL,
    manifest_id TEXT NOT NULL,
    job_id TEXT NOT NULL,
    lease_id TEXT NOT NULL,
    attempt_number INTEGER NOT NULL,
    step INTEGER NOT NULL,
    size_bytes INTEGER NOT NULL,
    parts INTEGER NOT NULL,
    digest TEXT NOT NULL,
    committed_at TEXT NOT NULL,
    set_aside TEXT,
    manifest TEXT
)""",
    "CREATE UNIQUE INDEX checkpoints_by_id ON checkpoints (task_id, manifest_id)",
    "CREATE INDEX checkpoints_of_task ON checkpoints (task_id, step)",
    """CREATE TABLE part_references (
    sha256 TEXT NOT NULL,
    task_id TEXT NOT NULL,
    owner TEXT NOT NULL,
    size_bytes INTEGER NOT NULL,
    reserved INTEGER NOT NULL,
    PRIMARY KEY (sha256, task_id, owner)
) WITHOUT ROWID""",
    "CREATE INDEX part_references_of_task ON part_references (task_id, owner)",
    "CREATE INDEX part_references_reserved ON part_references (task_id) WHERE reserved = 1",
    """CREATE TABLE successions (
    task_id TEXT NOT NULL,
    attempt_number INTEGER NOT NULL,
    lease_id TEXT NOT NULL,
    step INTEGER,
    manifest_id TEXT,
    PRIMARY KEY (task_id, attempt_number)
) WITHOUT ROWID""",
)
_COLUMNS = """task_id, manifest_id, job_id, lease_id, attempt_number, step, size_bytes, parts,
    digest, committed_at, set_aside"""
_SELECT = f"SELECT {_COLUMNS}, seq FROM checkpoints WHERE task_id=?"  # noqa: S608 (constants)
_ADD = f"""INSERT INTO checkpoints ({_COLUMNS}, manifest)
    VALUES (?,?,?,?,?,?,?,?,?,?,?,?)"""  # noqa: S608 (constants)
_ONE = " AND manifest_id=?"
_REFER = "INSERT OR IGNORE INTO part_references VALUES (?,?,?,?,?)"
_RELEASE = "DELETE FROM part_references WHERE reserved=1 AND task_id=?"
_RELEASE_ENDED = """DELETE FROM part_references WHERE reserved=1 AND task_id>'' AND task_id NOT IN (
    SELECT task_id FROM tasks WHERE tasks.task_id=part_references.task_id
    AND state IN ('PENDING','LEASED'))"""
_SOME_REFERENCES = """SELECT sha256, task_id, owner FROM part_references
    WHERE task_id>=? AND task_id<? LIMIT ?"""
_DROP_REFERENCE = "DELETE FROM part_references WHERE sha256=? AND task_id=? AND owner=?"
_FORGET = (
    """DELETE FROM checkpoints WHERE seq IN (
    SELECT seq FROM checkpoints WHERE task_id>=? AND task_id<? LIMIT ?)""",
    """DELETE FROM successions WHERE (task_id, attempt_number) IN (
    SELECT task_id, attempt_number FROM successions WHERE task_id>=? AND task_id<? LIMIT ?)""",
)


class SqliteCheckpoints:
    """The part of a transaction that knows checkpoints."""

    _db: sqlite3.Connection

    def checkpoint(self, task_id: str, manifest_id: str) -> CheckpointRow | None:
        """Return a checkpoint of a task."""
        found = self._db.execute(_SELECT + _ONE, (task_id, manifest_id)).fetchone()
        return None if found is None else _row(found)

    def checkpoints(self, task_id: str) -> list[CheckpointRow]:
        """Return the checkpoints of a task, greatest step first, of one step the latest commit."""
        found = self._db.execute(f"{_SELECT} ORDER BY step DESC, seq DESC", (task_id,))
        return [_row(values) for values in found]

    def manifest_json(self, task_id: str, manifest_id: str) -> str:
        """Return the manifest of an existing checkpoint that is not set aside."""
        sql = f"SELECT manifest FROM checkpoints WHERE task_id=?{_ONE}"  # noqa: S608 (constants)
        return str(self._db.execute(sql, (task_id, manifest_id)).fetchone()[0])

    def add_checkpoint(
        self, row: CheckpointRow, manifest_json: str, parts: Sequence[PartSize]
    ) -> None:
        """Insert a checkpoint, with a reference to each of its parts."""
        committed = row.committed_at.isoformat()
        whose = (row.task_id, row.manifest_id, row.job_id, row.lease_id, row.attempt_number)
        what = (row.step, row.size_bytes, row.parts, row.digest, committed, row.set_aside)
        self._db.execute(_ADD, (*whose, *what, manifest_json))
        self._refer(row.task_id, row.manifest_id, parts, reserved=False)

    def _refer(
        self, task_id: str, owner: str, parts: Sequence[PartSize], *, reserved: bool
    ) -> None:
        rows = [(part.sha256, task_id, owner, part.size_bytes, int(reserved)) for part in parts]
        self._db.executemany(_REFER, rows)

    def set_checkpoint_aside(self, task_id: str, manifest_id: str, reason: str) -> list[str]:
        """Keep the row with a reason; drop manifest and references, and return these."""
        sql = "UPDATE checkpoints SET set_aside=?, manifest=NULL WHERE task_id=? AND manifest_id=?"
        self._db.execute(sql, (reason, task_id, manifest_id))
        return self._drop_references(task_id, manifest_id)

    def remove_checkpoint(self, task_id: str, manifest_id: str) -> list[str]:
        """Remove a checkpoint and its references, and return these."""
        sql = "DELETE FROM checkpoints WHERE task_id=? AND manifest_id=?"
        self._db.execute(sql, (task_id, manifest_id))
        return self._drop_references(task_id, manifest_id)

    def _drop_references(self, task_id: str, owner: str) -> list[str]:
        sql = "DELETE FROM part_references WHERE task_id=? AND owner=? RETURNING sha256"
        return [str(found[0]) for found in self._db.execute(sql, (task_id, owner)).fetchall()]

    def add_succession(self, row: SuccessionRow) -> None:
        """Insert what an attempt took over, unless it is known."""
        values = (row.task_id, row.attempt_number, row.lease_id, row.step, row.manifest_id)
        self._db.execute("INSERT OR IGNORE INTO successions VALUES (?,?,?,?,?)", values)

    def successions(self, task_id: str) -> list[SuccessionRow]:
        """Return the attempts of a task that committed, in their order."""
        sql = "SELECT * FROM successions WHERE task_id=? ORDER BY attempt_number"
        return [SuccessionRow(*values) for values in self._db.execute(sql, (task_id,))]

    def reserve_parts(self, task_id: str, lease_id: str, parts: Sequence[PartSize]) -> None:
        """Refer to parts that a lease announces, in place of all announced for the task before."""
        self.release_parts(task_id)
        self._refer(task_id, lease_id, parts, reserved=True)

    def part_size(self, task_id: str, sha256: str, lease_id: str | None) -> int | None:
        """Return the size of a part that a lease announced, with None that a checkpoint names."""
        sql = """SELECT size_bytes FROM part_references WHERE sha256=:sha256 AND task_id=:task_id
            AND (reserved=0 AND :lease_id IS NULL OR reserved=1 AND owner=:lease_id) LIMIT 1"""
        named = {"sha256": sha256, "task_id": task_id, "lease_id": lease_id}
        found = self._db.execute(sql, named).fetchone()
        return None if found is None else int(found[0])

    def release_parts(self, task_id: str) -> None:
        """Drop what was announced for a task."""
        self._db.execute(_RELEASE, (task_id,))

    def release_ended(self) -> int:
        """Drop what was announced for tasks that have ended; return how many parts."""
        return self._db.execute(_RELEASE_ENDED).rowcount

    def referenced_parts(self, after: str, limit: int) -> list[str]:
        """Return digests beyond `after` that are referenced, ascending and each once."""
        sql = "SELECT DISTINCT sha256 FROM part_references WHERE sha256>? ORDER BY sha256 LIMIT ?"
        return [str(found[0]) for found in self._db.execute(sql, (after, limit))]

    def committed_parts(self, after: str, limit: int) -> list[tuple[str, int]]:
        """Return digests beyond `after` that checkpoints name, ascending, with their sizes."""
        sql = """SELECT sha256, max(size_bytes) FROM part_references
            WHERE sha256>? AND reserved=0 GROUP BY sha256 ORDER BY sha256 LIMIT ?"""
        return [(str(found[0]), found[1]) for found in self._db.execute(sql, (after, limit))]

    def is_referenced(self, sha256: str) -> bool:
        """Return whether anything refers to a part."""
        sql = "SELECT 1 FROM part_references WHERE sha256=? LIMIT 1"
        return self._db.execute(sql, (sha256,)).fetchone() is not None

    def forget_checkpoints(self, job_id: str, limit: int) -> list[str] | None:
        """Remove some of this for the tasks of a job; None when nothing is left."""
        of_job = (f"{job_id}-", f"{job_id}.", limit)
        found = self._db.execute(_SOME_REFERENCES, of_job).fetchall()
        self._db.executemany(_DROP_REFERENCE, found)
        if found:
            return [str(values[0]) for values in found]
        gone = [self._db.execute(sql, of_job).rowcount for sql in _FORGET]
        return [] if any(gone) else None

    def tasks_with_part(self, sha256: str, limit: int) -> list[str]:
        """Return tasks that refer to a part."""
        sql = "SELECT DISTINCT task_id FROM part_references WHERE sha256=? LIMIT ?"
        return [str(found[0]) for found in self._db.execute(sql, (sha256, limit))]


def _row(values: Values) -> CheckpointRow:
    converted: Values = (*values[:9], datetime.fromisoformat(values[9]), *values[10:])
    return CheckpointRow(*converted)
