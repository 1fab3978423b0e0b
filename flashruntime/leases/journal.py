"""How a ledger file makes a change durable before it is acknowledged."""

from enum import StrEnum


class Journal(StrEnum):
    """A journal mode of SQLite.

    WAL needs shared memory and locks that work: a local disk. DELETE needs the locks alone, for
    directories that come from another machine or through a virtual file system; each group of
    changes then costs several fsyncs instead of one.
    """

    WAL = "wal"
    DELETE = "delete"

    @property
    def synchronous(self) -> str:
        """What PRAGMA synchronous must be for a commit to survive a power loss."""
        return "FULL" if self is Journal.WAL else "EXTRA"

    @property
    def companions(self) -> tuple[str, ...]:
        """Suffixes of the files that must stay beside the ledger while it is open."""
        return ("-wal", "-shm") if self is Journal.WAL else ()
