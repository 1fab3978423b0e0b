"""The undo journal."""

import threading
from pathlib import Path

import pytest

from chaos import journal as journal_module
from chaos.journal import Journal, open_undos, undo_all
from chaos.model import Undo


def undo(number: int, action: str = "start_container") -> Undo:
    return Undo(f"f/{number}", "run-1", "f", action, {"service": f"worker-{number}"})


def test_open_undos_come_newest_first_without_those_that_are_done(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    for number in range(3):
        journal.promise(undo(number))
    journal.done("f/1")
    journal.close()
    assert open_undos(journal.path) == (undo(2), undo(0))


def test_a_torn_last_line_loses_nothing_that_was_written_whole(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    journal.promise(undo(0))
    journal.close()
    whole = journal.path.read_bytes()
    for length in range(len(whole)):
        journal.path.write_bytes(whole + whole[:length])
        assert open_undos(journal.path) == (undo(0),)


def test_a_journal_that_ends_torn_can_be_continued(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    first = Journal(path)
    first.promise(undo(0))
    first.close()
    path.write_bytes(path.read_bytes() + b'{"promise": {"undo')
    second = Journal(path)
    second.promise(undo(1))
    second.done("f/0")
    second.close()
    assert open_undos(path) == (undo(1),)


def test_garbage_lines_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b'\xff\xfe\n[1]\n{"promise": {"undo_id": 3}}\n{"promise": "x"}\n\n')
    assert open_undos(path) == ()


def test_one_undo_that_fails_stops_no_other() -> None:
    done: list[str] = []

    def carry_out(step: Undo) -> None:
        if step.undo_id == "f/1":
            raise RuntimeError("no such container")

    undos = tuple(undo(number) for number in range(3))
    failures = undo_all(undos, carry_out, lambda step: done.append(step.undo_id))
    assert done == ["f/0", "f/2"]
    assert failures == ("start_container for f: RuntimeError: no such container",)


def test_one_undo_that_hangs_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "UNDO_S", 0.05)
    release, done = threading.Event(), []

    def carry_out(step: Undo) -> None:
        if step.undo_id == "f/0":
            release.wait(30)

    failures = undo_all((undo(0), undo(1)), carry_out, lambda step: done.append(step.undo_id))
    release.set()
    assert done[0] == "f/1"
    assert failures == ("start_container for f: no end within its deadline",)
