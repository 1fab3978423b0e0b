"""Backups of a ledger that is in use."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from flashruntime.cli import main
from flashruntime.clock import SystemClock
from flashruntime.leases.manager import LeaseManager
from flashruntime.leases.sqlite import SqliteStore
from flashruntime.service.blobs import BlobStore
from flashruntime.service.core import DATABASE

A, B = (hashlib.sha256(text).hexdigest() for text in (b"a", b"bb"))


class Place:
    """A ledger and a store with two artifacts, in use."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.store = SqliteStore(root / "ledger" / DATABASE)
        self.manager = LeaseManager(self.store, SystemClock())
        self.blobs = BlobStore(root / "artifacts", 1_000)
        self.blobs.open()
        for key, text in (("one", b"a"), ("two", b"bb")):
            with closing(self.blobs.upload()) as upload:
                self.manager.put_object(key, upload.finish(text, None), len(text), None)
        logs = root / "ledger" / "logs" / "job-1"
        logs.mkdir(parents=True)
        (logs / "00000-00001.log").write_bytes(b"text")

    def blob(self, sha256: str) -> Path:
        return self.root / "artifacts" / "sha256" / sha256[:2] / sha256

    def backup(self, *more: str, name: str = "copy") -> int:
        ledger, artifacts = self.root / "ledger", self.root / "artifacts"
        words = ["backup", str(self.root / name), "--ledger-dir", str(ledger)]
        return main([*words, "--artifact-dir", str(artifacts), *more])


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.store.close()
    made.blobs.close()


def test_a_backup_holds_ledger_output_and_artifacts_and_can_be_opened(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    assert place.backup("--verify") == 0
    assert "2 artifacts of 3 B (2 linked, 0 copied), verified" in capsys.readouterr().out
    copy = place.root / "copy"
    assert json.loads((copy / "backup.json").read_text())["problems"] == {}
    assert (copy / "ledger" / "logs" / "job-1" / "00000-00001.log").read_bytes() == b"text"
    place.manager.put_object("after", A, 1, None)
    store = SqliteStore(copy / "ledger" / DATABASE)
    with store.transaction() as tx:
        assert [bool(tx.object(key)) for key in ("one", "two", "after")] == [True, True, False]
    store.close()
    blobs = BlobStore(copy / "artifacts", 1_000)
    blobs.open()
    with blobs.read(B, 2) as file:
        assert file.read() == b"bb"
    blobs.close()
    assert sorted(path.name for path in place.root.iterdir()) == ["artifacts", "copy", "ledger"]


def test_the_coordinator_goes_on_beside_a_backup(place: Place) -> None:
    with place.store.transaction() as tx:
        assert place.backup() == 0
        assert tx.object("one") is not None
    place.manager.put_object("after", A, 1, None)
    assert place.manager.object("after").sha256 == A


def test_artifacts_are_copied_on_request_and_left_out_on_request(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    assert place.backup("--copy") == 0
    assert "0 linked, 2 copied" in capsys.readouterr().out
    copied = place.root / "copy" / "artifacts" / "sha256" / A[:2] / A
    assert (copied.read_bytes(), copied.stat().st_nlink) == (b"a", 1)
    assert place.backup("--no-artifacts", name="lean") == 0
    assert "no artifacts" in capsys.readouterr().out
    assert not (place.root / "lean" / "artifacts").exists()


def test_what_is_missing_or_rotten_is_said_and_fails(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place.blob(A).unlink()
    place.blob(B).write_bytes(b"bx")
    assert place.backup("--verify") == 1
    out = capsys.readouterr().out
    assert f"artifact {A}: it cannot be read" in out
    assert f"artifact {B}: its 2 bytes hash to" in out
    assert place.backup("--copy", name="second") == 1
    assert f"artifact {B}: its bytes hash to" in capsys.readouterr().out


def test_damage_that_the_coordinator_knows_is_marked_as_such(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place.blob(A).unlink()
    place.manager.note_damage(A, "rot")
    assert place.backup() == 1
    assert "it is missing (known to the coordinator)" in capsys.readouterr().out


def test_a_backup_is_checked_later(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.backup()
    assert main(["backup", "--check", str(place.root / "copy")]) == 0
    (place.root / "copy" / "artifacts" / "sha256" / B[:2] / B).unlink()
    assert main(["backup", "--check", str(place.root / "copy")]) == 1
    assert B in capsys.readouterr().out
    ledger = place.root / "copy" / "ledger" / DATABASE
    data = bytearray(ledger.read_bytes())
    data[4096 * 4 : 4096 * 4 + 2000] = b"\xa5" * 2000
    ledger.write_bytes(data)
    assert main(["backup", "--check", str(place.root / "copy")]) == 1
    assert "malformed" in capsys.readouterr().err


def test_an_earlier_backup_is_never_overwritten(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    (place.root / "empty").mkdir()
    assert place.backup(name="empty") == 0
    assert place.backup(name="empty") == 2
    assert "not empty" in capsys.readouterr().err


def test_what_is_no_ledger_or_no_store_is_refused_and_leaves_nothing(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    assert place.backup("--ledger-dir", str(place.root)) == 1
    assert "is no ledger" in capsys.readouterr().err
    assert place.backup("--artifact-dir", str(place.root)) == 1
    assert "--no-artifacts" in capsys.readouterr().err
    (place.root / DATABASE).write_text("dear diary" * 1_000)
    assert place.backup("--ledger-dir", str(place.root)) == 1
    assert sorted(path.name for path in place.root.iterdir()) == ["artifacts", "ledger", DATABASE]


def test_a_job_that_is_deleted_while_its_artifacts_are_copied_is_not_missed(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first snapshot names bytes that are gone by now, the second does not."""
    from flashruntime.cli import backup

    copy, snapshots = backup.copy_ledger, 0

    def copied(source: Path, target: Path) -> None:
        nonlocal snapshots
        copy(source, target)
        snapshots += 1
        if snapshots == 1:
            with place.store.transaction() as tx:
                tx.delete_object("one")
            place.blob(A).unlink()

    monkeypatch.setattr(backup, "copy_ledger", copied)
    assert place.backup() == 0
    assert snapshots == 2
