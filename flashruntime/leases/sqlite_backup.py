"""Copying a ledger while its coordinator writes to it, and reading what it needs of the store.

It takes no lock that a coordinator minds: the copy is one read transaction of the write-ahead log.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from flashruntime.errors import NotFound, StoreUnavailable

LEDGER_FILE = "ledger.sqlite3"
BUSY_S = 30.0


@dataclass(frozen=True, slots=True)
class Contents:
    """What a ledger holds: the sizes of the bytes that it refers to, those known to be damaged."""

    schema_version: int
    jobs: int
    sizes: dict[str, int]
    damaged: frozenset[str]


def copy_ledger(source: Path, target: Path) -> None:
    """Copy the ledger file `source` as it is at one instant, durably, to `target`.

    Raises NotFound, or StoreUnavailable if it is no ledger, damaged, or the disk refuses.
    """
    if not source.is_file():
        raise NotFound(f"{source} is no ledger; name the coordinator's FLASHML_LEDGER_DIR")
    with _explained(source), closing(_open(source)) as db, closing(sqlite3.connect(target)) as to:
        db.execute("PRAGMA query_only=1")
        db.backup(to)
        check(to, target)
    _fsync(target)


def read_contents(ledger: Path) -> Contents:
    """Return what a ledger file holds; StoreUnavailable if it cannot be read."""
    with _explained(ledger), closing(_open(ledger)) as db:
        check(db, ledger)
        (version,) = db.execute("SELECT max(version) FROM schema_version").fetchone()
        (jobs,) = db.execute("SELECT count(*) FROM jobs").fetchone()
        sizes: dict[str, int] = {}
        damaged: frozenset[str] = frozenset()
        for table, columns in _tables(db):
            if table == "damaged":
                damaged = frozenset(row[0] for row in db.execute("SELECT sha256 FROM damaged"))
            elif {"sha256", "size_bytes"} <= columns:
                there = " WHERE reserved=0" if "reserved" in columns else ""
                sizes.update(db.execute(f'SELECT sha256, size_bytes FROM "{table}"{there}'))  # noqa: S608 (a table's own name)
    return Contents(version, jobs, sizes, damaged)


def check(db: sqlite3.Connection, path: Path) -> None:
    """Raise StoreUnavailable unless a ledger is whole."""
    found = db.execute("PRAGMA integrity_check(3)").fetchall()
    if found != [("ok",)]:
        raise StoreUnavailable(f"{path} is damaged ({'; '.join(str(row[0]) for row in found)})")
    if "schema_version" not in dict(_tables(db)):
        raise StoreUnavailable(f"{path} is another program's database")


def _tables(db: sqlite3.Connection) -> list[tuple[str, set[str]]]:
    names = db.execute("SELECT name FROM sqlite_master WHERE type='table'").fetchall()
    return [
        (name, {row[1] for row in db.execute(f'PRAGMA table_info("{name}")')}) for (name,) in names
    ]


def _open(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=BUSY_S)


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise StoreUnavailable(f"{path} cannot be copied or read: {error}") from error
