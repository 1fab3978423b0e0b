"""The spool and two lookups in SQL; each operation is answered by an index."""

import sqlite3
from collections.abc import Sequence

from flashruntime.leases.store_spool import Spooled


class SqliteSpool:
    """Runs these operations on an open transaction of one connection."""

    _db: sqlite3.Connection

    def spool(self, sha256: str, data: bytes) -> None:
        """Keep bytes until `unspool`."""
        self._db.execute("INSERT INTO spool VALUES (NULL,?,?)", (sha256, data))

    def spooled(self, after: int, limit: int) -> list[Spooled]:
        """Return what is kept, numbered above `after`, in that order."""
        sql = "SELECT number, sha256 FROM spool WHERE number>? ORDER BY number LIMIT ?"
        return [Spooled(*found) for found in self._db.execute(sql, (after, limit))]

    def spooled_bytes(self, number: int) -> bytes | None:
        """Return bytes that are kept."""
        sql = "SELECT data FROM spool WHERE number=?"
        found = self._db.execute(sql, (number,)).fetchone()
        return None if found is None else bytes(found[0])

    def unspool(self, last: int) -> None:
        """Drop the bytes numbered up to `last`."""
        self._db.execute("DELETE FROM spool WHERE number<=?", (last,))

    def first_object(self, keys: Sequence[str]) -> str | None:
        """Return one of these keys under which there is an object."""
        marks = ",".join("?" * len(keys))
        sql = f"SELECT key FROM objects WHERE key IN ({marks}) LIMIT 1"  # noqa: S608 (only question marks)
        found = self._db.execute(sql, list(keys)).fetchone()
        return None if found is None else str(found[0])
