"""A ledger in one SQLite file: journalled, fsync before each answer, one writer.

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
from flashruntime.leases.journal import Journal
from flashruntime.leases.sqlite_files import LedgerFiles
from flashruntime.leases.sqlite_kept import KeptTransaction, LedgerConnection
from flashruntime.leases.sqlite_upgrade import ensure_schema
from flashruntime.leases.store import Transaction

LOCK_NAME = "coordinator.lock"
BUSY_TIMEOUT_S = 2.0
RETRY_S = 0.005
CACHE_KIB = 64 * 1024
CHECKPOINT_PAGES = 4_000
MAX_IDLE_LOG_BYTES = 64 * 1024 * 1024
_OURS_TO_FIX = (sqlite3.IntegrityError, sqlite3.ProgrammingError, sqlite3.InterfaceError)


class SqliteStore:
    """Opens or creates the ledger at `path` and locks its directory against other coordinators.

    Raises StoreLocked if another one has it, StoreUnavailable if it is damaged, foreign, newer
    or out of reach. `busy_timeout_s` bounds the wait for a foreign process that writes to it.
    `on_commit` is told the seconds that each commit of changes took.
    """

    def __init__(
        self,
        path: Path,
        *,
        busy_timeout_s: float = BUSY_TIMEOUT_S,
        journal: Journal = Journal.WAL,
    ) -> None:
        self.path = path.absolute()
        self._journal = journal
        self._busy_timeout_s = busy_timeout_s
        self._broken: str | None = None
        self._grouped = False
        self._saved = False
        self._changes_before = 0
        self.on_commit: Callable[[float], None] | None = None
        with _explained(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._lock_fd = _lock(self.path.parent / LOCK_NAME)
            try:
                self._db = self._open()
            except BaseException:
                os.close(self._lock_fd)
                raise
        self._tx = KeptTransaction(self._db)

    def _open(self) -> LedgerConnection:
        db = sqlite3.connect(
            self.path,
            timeout=self._busy_timeout_s,
            isolation_level=None,
            check_same_thread=False,
            factory=LedgerConnection,
        )
        try:
            _set_journal(db, self.path, self._journal)
            db.execute(f"PRAGMA cache_size=-{CACHE_KIB}")
            db.execute("PRAGMA temp_store=MEMORY")
            db.execute(f"PRAGMA wal_autocheckpoint={CHECKPOINT_PAGES}")
            db.execute(f"PRAGMA journal_size_limit={MAX_IDLE_LOG_BYTES}")
            _check_integrity(db, self.path)
            ensure_schema(db, self.path)
            db.execute("PRAGMA busy_timeout=0")
            names = [self.path.name + suffix for suffix in ("", *self._journal.companions)]
            quiet = self._journal is Journal.WAL
            self._files = LedgerFiles(self.path.parent, [*names, LOCK_NAME], quiet=quiet)
        except BaseException:
            db.close()
            raise
        return db

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Open a transaction; an exception in the block undoes it. StoreUnavailable if refused."""
        if not self._grouped:
            with self._durably(self._busy_timeout_s):
                yield self._tx
            return
        self._require_group()
        if self._saved:
            raise RuntimeError("transactions of one store do not nest")
        try:
            self._db.execute("SAVEPOINT call")
            self._saved = True
            self._changes_before = self._db.total_changes
            yield self._tx
            self._db.execute("RELEASE call")
        except BaseException as error:
            self._undo_call()
            self._raise_if_refused(error)
            raise
        finally:
            self._saved = False

    @contextmanager
    def group(self, *, wait: bool = True) -> Iterator[Callable[[], bool]]:
        """Let the transactions of the block reach the disk together, each undone alone.

        Without `wait`, StoreUnavailable at once where a foreign process holds the file.
        """
        with self._durably(self._busy_timeout_s if wait else 0.0):
            self._grouped = True
            before = self._db.total_changes
            try:
                yield lambda: self._db.total_changes != before or not self._db.in_transaction
            finally:
                self._grouped = False
            self._require_group()

    @contextmanager
    def _durably(self, patience_s: float) -> Iterator[None]:
        if self._broken is not None:
            raise StoreUnavailable(f"{self._broken}; restart the coordinator")
        if self._db.in_transaction:
            raise RuntimeError("transactions of one store do not nest")
        try:
            self._patiently("BEGIN IMMEDIATE", patience_s)
            before = self._db.total_changes
            yield
            if self._db.total_changes == before:
                # A commit wants the file for itself, even with nothing to write.
                self._db.execute("ROLLBACK")
            else:
                self._commit()
        except BaseException as error:
            self._roll_back()
            self._raise_if_refused(error)
            raise
        self._files.check()

    def _commit(self) -> None:
        began_s = time.perf_counter()
        self._patiently("COMMIT", self._busy_timeout_s)
        if self.on_commit is not None:
            self.on_commit(time.perf_counter() - began_s)

    def _patiently(self, sql: str, patience_s: float) -> None:
        """Run a statement, again and again while a foreign process holds the file."""
        until_s = time.monotonic() + patience_s
        while True:
            try:
                self._db.execute(sql)
            except sqlite3.OperationalError as error:
                busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
                if not busy or time.monotonic() >= until_s:
                    raise
                time.sleep(RETRY_S)
            else:
                return

    def _raise_if_refused(self, error: BaseException) -> None:
        """Raise StoreUnavailable for what SQLite or the system refuses."""
        if isinstance(error, sqlite3.Error) and not isinstance(error, _OURS_TO_FIX):
            raise _unavailable(self.path, error) from error

    def _require_group(self) -> None:
        if not self._db.in_transaction:
            raise StoreUnavailable(f"a change of {self.path} failed and took its group along")

    def _undo_call(self) -> None:
        """Undo one transaction of a group, or the whole group where SQLite has given it up."""
        if self._db.total_changes != self._changes_before:
            self._tx.forget()
        if not self._db.in_transaction:
            return
        try:
            self._db.execute("ROLLBACK TO call")
            self._db.execute("RELEASE call")
        except sqlite3.Error:
            self._roll_back()

    def _roll_back(self) -> None:
        self._tx.forget()
        if not self._db.in_transaction:
            return
        try:
            self._db.execute("ROLLBACK")
        except sqlite3.Error as error:
            self._broken = f"a change of {self.path} could be neither kept nor undone: {error}"

    def close(self) -> None:
        """Close the file and give up the lock."""
        with contextlib.suppress(sqlite3.Error):
            self._db.close()
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1


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


def _set_journal(db: sqlite3.Connection, path: Path, journal: Journal) -> None:
    (found,) = db.execute(f"PRAGMA journal_mode={journal}").fetchone()
    if found != journal:
        raise StoreUnavailable(
            f"{path} cannot be journalled as {journal} where it lies (it is {found}): move it to "
            "a local disk (FLASHML_LEDGER_DIR), or set FLASHML_LEDGER_JOURNAL=delete"
        )
    db.execute(f"PRAGMA synchronous={journal.synchronous}")


def _check_integrity(db: sqlite3.Connection, path: Path) -> None:
    found = db.execute("PRAGMA integrity_check(3)").fetchall()
    if found != [("ok",)]:
        raise StoreUnavailable(
            f"{path} is damaged ({'; '.join(str(row[0]) for row in found)}): restore a backup, "
            "or move it aside to begin with an empty ledger"
        )


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
