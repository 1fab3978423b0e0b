"""The output of attempts."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashruntime.errors import NotFound
from flashruntime.service import attempt_logs
from flashruntime.service.attempt_logs import AttemptLogs, read_tail
from flashruntime.service.errors import LogGap


@pytest.fixture
def logs(tmp_path: Path) -> AttemptLogs:
    return AttemptLogs(tmp_path, max_bytes=1_000)


def whole(logs: AttemptLogs) -> bytes:
    return (logs.root / "job" / "00000-00001.log").read_bytes()


def test_repeated_and_overlapping_offsets_store_each_byte_once(logs: AttemptLogs) -> None:
    assert logs.append("job", 0, 1, 0, b"abc") == 3
    assert logs.append("job", 0, 1, 0, b"abc") == 3
    assert logs.append("job", 0, 1, 1, b"bcde") == 5
    assert logs.append("job", 0, 1, 0, b"a") == 5
    assert whole(logs) == b"abcde"


def test_a_gap_is_refused_with_the_length_so_far(logs: AttemptLogs) -> None:
    logs.append("job", 0, 1, 0, b"abc")
    with pytest.raises(LogGap) as caught:
        logs.append("job", 0, 1, 4, b"x")
    assert caught.value.size == 3
    assert whole(logs) == b"abc"


def test_output_beyond_the_bound_is_dropped_with_a_visible_mark(logs: AttemptLogs) -> None:
    assert logs.append("job", 0, 1, 0, b"x" * 900) == 900
    assert logs.append("job", 0, 1, 900, b"y" * 900) == 1_800
    kept = whole(logs)
    assert kept.startswith(b"x" * 900 + b"y" * 100 + b"\n[")
    assert b"first 1000 bytes" in kept
    assert logs.append("job", 0, 1, 1_800, b"z") == 1_801
    assert whole(logs) == kept


def test_the_newest_attempt_of_each_task_is_shown(logs: AttemptLogs) -> None:
    logs.append("job", 0, 1, 0, b"old\n")
    logs.append("job", 0, 2, 0, b"new")
    assert logs.tail("job", 10, None, None) == "new"
    logs.append("job", 1, 1, 0, b"other\n")
    assert logs.tail("job", 10, None, None) == (
        "==> task 0 attempt 2 <==\nnew\n==> task 1 attempt 1 <==\nother\n"
    )


def test_a_task_and_an_attempt_can_be_selected(logs: AttemptLogs) -> None:
    logs.append("job", 0, 1, 0, b"old\n")
    logs.append("job", 0, 2, 0, b"new\n")
    assert logs.tail("job", 10, 0, 1) == "old\n"
    with pytest.raises(NotFound, match="task 3"):
        logs.tail("job", 10, 3, None)


def test_a_job_without_output_has_empty_logs(logs: AttemptLogs) -> None:
    assert logs.tail("job", 10, None, None) == ""


def test_the_answer_for_many_tasks_is_bounded_and_says_so(
    logs: AttemptLogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt_logs, "MAX_ANSWER_BYTES", 10)
    for task in range(3):
        logs.append("job", task, 1, 0, b"x" * 8)
    assert logs.tail("job", 10, None, None).endswith("[1 more tasks; name one with ?task=]\n")


def test_033_invalid_utf8_and_nul_are_shown_as_valid_text(logs: AttemptLogs) -> None:
    logs.append("job", 0, 1, 0, b"\xff\xfe ok \x00 \xc3\n")
    assert logs.tail("job", 10, None, None).encode() == "\ufffd\ufffd ok \0 \ufffd\n".encode()


def test_029_of_a_huge_line_the_end_is_read(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"a" * 200_000 + b"END")
    assert read_tail(path, 5, 100_000) == "a" * 99_997 + "END"


@given(st.lists(st.text("ab\r", max_size=30)), st.booleans(), st.integers(0, 12))
def test_a_tail_is_the_last_lines(lines: list[str], ended: bool, count: int) -> None:
    import tempfile

    text = "\n".join(lines) + ("\n" if ended else "")
    pieces = text.split("\n")
    expected = [piece + "\n" for piece in pieces[:-1]] + ([pieces[-1]] if pieces[-1] else [])
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_bytes(text.encode())
        assert read_tail(Path(file.name), count, 10_000) == "".join(
            expected[len(expected) - min(count, len(expected)) :]
        )
