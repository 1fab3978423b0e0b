"""Bringing a ledger file to the schema of this release, one version after the other.

Each step is one transaction with its version number, so that a kill in between is repaired by the
next start. Before the first one the file is copied beside itself.
"""

import os
import sqlite3
from pathlib import Path

from flashruntime.errors import StoreUnavailable
from flashruntime.leases.sqlite_schema import SCHEMA, SCHEMA_VERSION, UPGRADES


def ensure_schema(db: sqlite3.Connection, path: Path) -> None:
    """Create the tables of an empty file, or upgrade them.

    Raises StoreUnavailable if the file is another program's or a newer release's.
    """
    version = _version(db, path)
    if version is None:
        _step(db, SCHEMA.split(";"), SCHEMA_VERSION, "INSERT INTO schema_version VALUES (?)")
        return
    if not version <= SCHEMA_VERSION or any(v not in UPGRADES for v in _missing(version)):
        raise StoreUnavailable(
            f"{path} has schema version {version}, this flashruntime reads {SCHEMA_VERSION}: "
            "use the release that wrote it, restore a backup, or move it aside"
        )
    if version < SCHEMA_VERSION:
        _keep_copy(db, backup_path(path, version))
    for old in _missing(version):
        _step(db, UPGRADES[old], old + 1, "UPDATE schema_version SET version=?")


def backup_path(path: Path, version: int) -> Path:
    """Return where the copy goes that is made of a ledger before its upgrade."""
    return path.with_name(f"{path.name}.before-upgrade-v{version}")


def _missing(version: int) -> range:
    return range(version, SCHEMA_VERSION)


def _version(db: sqlite3.Connection, path: Path) -> int | None:
    """Return the version of the schema, None for an empty file."""
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type='table'")}
    if not tables:
        return None
    if "schema_version" not in tables:
        raise StoreUnavailable(f"{path} is another program's database: choose another path")
    found = db.execute("SELECT max(version) FROM schema_version").fetchone()[0]
    if not isinstance(found, int):
        raise StoreUnavailable(f"{path} states no schema version: restore a backup")
    return found


def _step(
    db: sqlite3.Connection, statements: tuple[str, ...] | list[str], version: int, mark: str
) -> None:
    db.execute("BEGIN IMMEDIATE")
    try:
        for statement in statements:
            db.execute(statement)
        db.execute(mark, (version,))
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _keep_copy(db: sqlite3.Connection, copy: Path) -> None:
    """Copy the ledger durably; a copy of an earlier try, which is whole, is kept."""
    if copy.exists():
        return
    part = copy.with_name(f"{copy.name}.part")
    part.unlink(missing_ok=True)
    target = sqlite3.connect(part)
    try:
        db.backup(target)
        target.execute("PRAGMA journal_mode=DELETE")
    finally:
        target.close()
    part.replace(copy)
    descriptor = os.open(copy.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
