"""A ledger in one SQLite file: write-ahead log, fsync before each answer, one writer.

Changes are acknowledged only while the file that took them is still the one at its path.
"""

import contextlib
import fcntl
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from flashruntime.errors import StoreLocked, StoreUnavailable
from flashruntime.leases.sqlite_schema import SCHEMA, SCHEMA_VERSION, UPGRADES
from flashruntime.leases.sqlite_transaction import SqliteTransaction
from flashruntime.leases.store import Transaction

LOCK_NAME = "coordinator.lock"
BUSY_TIMEOUT_S = 2.0
CACHE_KIB = 16 * 1024
_OURS_TO_FIX = (sqlite3.IntegrityError, sqlite3.ProgrammingError, sqlite3.InterfaceError)


class SqliteStore:
    """Opens or creates the ledger at `path` and locks its directory against other coordinators.

    Raises StoreLocked if another one has it, StoreUnavailable if it is damaged, foreign, newer
    or out of reach. `busy_timeout_s` bounds the wait for a foreign process that writes to it.
    """

    def __init__(self, path: Path, *, busy_timeout_s: float = BUSY_TIMEOUT_S) -> None:
        self.path = path.absolute()
        self._broken: str | None = None
        self.on_commit: Callable[[float], None] | None = None
        self._identities: dict[Path, tuple[int, int]] = {}
        with _explained(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._lock_fd = _lock(self.path.parent / LOCK_NAME)
            try:
                self._db = self._open(busy_timeout_s)
            except BaseException:
                os.close(self._lock_fd)
                raise
        self._tx = SqliteTransaction(self._db)

    def _open(self, busy_timeout_s: float) -> sqlite3.Connection:
        db = sqlite3.connect(
            self.path, timeout=busy_timeout_s, isolation_level=None, check_same_thread=False
        )
        try:
            db.execute("PRAGMA journal_mode=WAL")
            db.execute("PRAGMA synchronous=FULL")
            db.execute(f"PRAGMA cache_size=-{CACHE_KIB}")
            _check_integrity(db, self.path)
            _ensure_schema(db, self.path)
            for name in ("", "-wal", "-shm"):
                self._remember(self.path.with_name(self.path.name + name))
            self._remember(self.path.parent / LOCK_NAME)
        except BaseException:
            db.close()
            raise
        return db

    def _remember(self, path: Path) -> None:
        self._identities[path] = _identity(path)

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Open a transaction; an exception in the block undoes it. StoreUnavailable if refused."""
        self._check_files()
        if self._db.in_transaction:
            raise RuntimeError("transactions of one store do not nest")
        try:
            self._db.execute("BEGIN IMMEDIATE")
            yield self._tx
            began_s = time.perf_counter()
            self._db.execute("COMMIT")
            if self.on_commit is not None:
                self.on_commit(time.perf_counter() - began_s)
        except _OURS_TO_FIX:
            self._roll_back()
            raise
        except sqlite3.Error as error:
            self._roll_back()
            raise _unavailable(self.path, error) from error
        except BaseException:
            self._roll_back()
            raise
        self._check_files()

    def _roll_back(self) -> None:
        if not self._db.in_transaction:
            return
        try:
            self._db.execute("ROLLBACK")
        except sqlite3.Error as error:
            self._broken = f"a change of {self.path} could be neither kept nor undone: {error}"

    def _check_files(self) -> None:
        """Refuse to go on in a file that is no longer the one at its path."""
        if self._broken is not None:
            raise StoreUnavailable(f"{self._broken}; restart the coordinator")
        for path, identity in self._identities.items():
            try:
                same = _identity(path) == identity
            except OSError:
                same = False
            if not same:
                raise StoreUnavailable(
                    f"{path} was deleted or replaced while the coordinator used it: what is "
                    "written now would be lost. Put the ledger back in place and restart"
                )

    def close(self) -> None:
        """Close the file and give up the lock."""
        with contextlib.suppress(sqlite3.Error):
            self._db.close()
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1


def _identity(path: Path) -> tuple[int, int]:
    status = os.stat(path)  # noqa: PTH116 (hot path)
    return status.st_dev, status.st_ino


def _lock(path: Path) -> int:
    """Lock the directory of a ledger for this process's life; return the descriptor."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.read(fd, 200).decode("utf-8", "replace").strip() or "unknown"
        os.close(fd)
        raise StoreLocked(
            f"another coordinator ({owner}) holds {path}: stop it, or give this one a ledger "
            "directory of its own (FLASHML_LEDGER_DIR)"
        ) from None
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"pid {os.getpid()} on {os.uname().nodename}\n".encode(), 0)
    return fd


def _check_integrity(db: sqlite3.Connection, path: Path) -> None:
    found = db.execute("PRAGMA integrity_check(3)").fetchall()
    if found != [("ok",)]:
        raise StoreUnavailable(
            f"{path} is damaged ({'; '.join(str(row[0]) for row in found)}): restore a backup, "
            "or move it aside to begin with an empty ledger"
        )


def _ensure_schema(db: sqlite3.Connection, path: Path) -> None:
    db.execute("BEGIN IMMEDIATE")
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type='table'")}
    if not tables:
        for statement in SCHEMA.split(";"):
            db.execute(statement)
        db.execute("INSERT INTO schema_version VALUES (?)", (SCHEMA_VERSION,))
    elif "schema_version" not in tables:
        raise StoreUnavailable(f"{path} is another program's database: choose another path")
    (version,) = db.execute("SELECT max(version) FROM schema_version").fetchone()
    while version in UPGRADES:
        db.execute(UPGRADES[version])
        version += 1
        db.execute("UPDATE schema_version SET version=?", (version,))
    if version != SCHEMA_VERSION:
        raise StoreUnavailable(
            f"{path} has schema version {version}, this flashruntime reads {SCHEMA_VERSION}: "
            "use the release that wrote it, or move it aside"
        )
    db.execute("COMMIT")


def _unavailable(path: Path, error: Exception) -> StoreUnavailable:
    return StoreUnavailable(
        f"the ledger {path} cannot take the change: {error}. Free space, check permissions and "
        "disk, then retry"
    )


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        raise _unavailable(path, error) from error
