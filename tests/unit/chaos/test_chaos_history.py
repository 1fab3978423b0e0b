"""The history file."""

import threading
from pathlib import Path

import pytest

from chaos.history import History, HistoryError, HistoryWriter


def test_records_come_back_in_order_with_times_and_a_boot_id(tmp_path: Path) -> None:
    with HistoryWriter(tmp_path / "h.jsonl") as writer:
        writer.append("note", {"text": "\N{SNOWMAN}\n\u2028"})
        writer.append("note", {"text": "b"})
    first, second = History.load(tmp_path / "h.jsonl").records
    assert (first.seq, second.seq) == (0, 1)
    assert first.data == {"text": "\N{SNOWMAN}\n\u2028"}
    assert first.t_ns <= second.t_ns
    assert first.boot_id == second.boot_id != ""


def test_a_record_is_in_the_file_as_soon_as_it_is_appended(tmp_path: Path) -> None:
    writer = HistoryWriter(tmp_path / "h.jsonl")
    writer.append("note", {"text": "a"})
    assert len(History.load(tmp_path / "h.jsonl").records) == 1
    writer.close()


def test_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    with HistoryWriter(path) as writer:
        writer.append("note", {"text": "a"})
        writer.append("note", {"text": "b"})
    path.write_bytes(path.read_bytes()[:-3])
    assert History.load(path).of("note") == ({"text": "a"},)


def test_a_damaged_line_in_the_middle_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    with HistoryWriter(path) as writer:
        writer.append("note", {"text": "a"})
    path.write_bytes(b'{"seq": 1}\n' + path.read_bytes())
    with pytest.raises(HistoryError, match="line 1"):
        History.load(path)


def test_a_record_that_was_taken_out_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    with HistoryWriter(path) as writer:
        for text in "abc":
            writer.append("note", {"text": text})
    first, _, last = path.read_text().splitlines(keepends=True)
    path.write_text(first + last)
    with pytest.raises(HistoryError, match="record 1 is missing"):
        History.load(path)


def test_nan_never_reaches_the_file(tmp_path: Path) -> None:
    with HistoryWriter(tmp_path / "h.jsonl") as writer, pytest.raises(ValueError, match="JSON"):
        writer.append("note", {"loss": float("nan")})
    assert (tmp_path / "h.jsonl").read_bytes() == b""


def test_an_existing_history_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "h.jsonl").write_text("")
    with pytest.raises(FileExistsError):
        HistoryWriter(tmp_path / "h.jsonl")


def test_threads_may_append_at_once(tmp_path: Path) -> None:
    with HistoryWriter(tmp_path / "h.jsonl") as writer:
        threads = [
            threading.Thread(target=lambda: [writer.append("n", {}) for _ in range(50)])
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    records = History.load(tmp_path / "h.jsonl").records
    assert [record.seq for record in records] == list(range(200))


def test_an_event_seen_twice_counts_once(tmp_path: Path) -> None:
    event = {"id": 3, "type": "LEASE_CLAIMED", "mono_ns": 1, "boot_id": "b", "job_id": "j"}
    with HistoryWriter(tmp_path / "h.jsonl") as writer:
        writer.append("event", event)
        writer.append("event", {**event, "id": 2})
        writer.append("event", event)
    assert [event.id for event in History.load(tmp_path / "h.jsonl").events()] == [2, 3]
