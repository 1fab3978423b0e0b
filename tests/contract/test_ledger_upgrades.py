"""Ledgers of earlier releases, as those releases wrote them (`ledgers/ledger-vN.sqlite3.gz`)."""

import gzip
import sqlite3
from pathlib import Path

import pytest

from flashruntime.clock import SystemClock
from flashruntime.errors import StoreUnavailable
from flashruntime.leases import sqlite_upgrade
from flashruntime.leases.manager import LeaseManager
from flashruntime.leases.sqlite import SqliteStore
from flashruntime.leases.sqlite_schema import SCHEMA_VERSION, UPGRADES
from flashruntime.leases.sqlite_upgrade import backup_path
from flashruntime.protocol.tasks import ClaimRequest, CompleteRequest

LEDGERS = Path(__file__).parent / "ledgers"
KEPT = sorted(int(file.name[len("ledger-v") :].split(".")[0]) for file in LEDGERS.iterdir())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.sqlite3"


def unpack(version: int, path: Path) -> None:
    path.write_bytes(gzip.decompress((LEDGERS / f"ledger-v{version}.sqlite3.gz").read_bytes()))


def shape(path: Path) -> dict[str, object]:
    """The tables with their columns, and the indexes with theirs."""
    db = sqlite3.connect(path)
    names = db.execute("SELECT type, name FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'")
    found: dict[str, object] = {}
    for kind, name in names.fetchall():
        pragma = "table_info" if kind == "table" else "index_xinfo"
        found[f"{kind} {name}"] = [
            (row[1], row[2], row[3], row[5]) for row in db.execute(f"PRAGMA {pragma}({name})")
        ]
    db.close()
    return found


@pytest.mark.parametrize("version", KEPT)
def test_an_older_ledger_opens_and_its_work_goes_on(path: Path, version: int) -> None:
    unpack(version, path)
    store = SqliteStore(path)
    manager = LeaseManager(store, SystemClock())
    manager.start()
    assert manager.job("job-000000000001").state.value == "SUCCEEDED"
    assert [item.accepted for item in manager.job_objects("job-000000000001").items] == [True]
    assert manager.tasks("job-000000000002", None, 9).items[0].errors == 1
    live = manager.claim(ClaimRequest(node_id="w1", claim_id="live"))
    assert live is not None
    assert manager.complete(live.lease_id, CompleteRequest()).accepted
    again = manager.claim(ClaimRequest(node_id="w2"))
    assert again is not None
    store.close()


@pytest.mark.parametrize("version", KEPT)
def test_an_upgraded_ledger_has_the_tables_of_a_new_one(tmp_path: Path, version: int) -> None:
    unpack(version, tmp_path / "old")
    SqliteStore(tmp_path / "old").close()
    SqliteStore(tmp_path / "new").close()
    assert shape(tmp_path / "old") == shape(tmp_path / "new")


def test_every_earlier_version_has_a_step_and_the_kept_ledgers_are_read() -> None:
    assert list(UPGRADES) == list(range(1, SCHEMA_VERSION))
    assert KEPT[:2] == [1, 2]


def test_the_ledger_is_copied_before_its_first_change(path: Path) -> None:
    unpack(1, path)
    SqliteStore(path).close()
    copy = backup_path(path, 1)
    db = sqlite3.connect(copy)
    assert db.execute("SELECT version FROM schema_version").fetchone() == (1,)
    assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert db.execute("SELECT count(*) FROM jobs").fetchone() == (2,)
    db.close()
    copy.replace(path)
    SqliteStore(path).close()


def test_a_step_that_breaks_off_changes_nothing_and_the_next_start_goes_on(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill between two statements of a step looks the same to the file."""
    unpack(1, path)
    good = UPGRADES[1]
    broken = {**UPGRADES, 1: (*good, "INSERT INTO no_such_table VALUES (1)")}
    monkeypatch.setattr(sqlite_upgrade, "UPGRADES", broken)
    with pytest.raises(StoreUnavailable, match="no_such_table"):
        SqliteStore(path)
    db = sqlite3.connect(path)
    assert db.execute("SELECT version FROM schema_version").fetchone() == (1,)
    assert "same_run" not in [row[1] for row in db.execute("PRAGMA table_info(tasks)")]
    db.close()
    monkeypatch.undo()
    SqliteStore(path).close()


def test_a_newer_ledger_is_refused_with_what_to_do_and_stays_as_it_is(path: Path) -> None:
    SqliteStore(path).close()
    db = sqlite3.connect(path)
    with db:
        db.execute("UPDATE schema_version SET version = 99")
    db.close()
    with pytest.raises(StoreUnavailable, match=r"version 99.*use the release that wrote it"):
        SqliteStore(path)
    assert list(path.parent.glob("*before-upgrade*")) == []
