"""Logs of containers: whatever stands there is read, and what is missing is counted."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import logs


def line(seq: int, event: str = "beat", second: int = 0, **fields: str) -> str:
    """A line; the later it is by the monotonic clock, the earlier by the time of day."""
    at = f"2026-01-01T00:00:{59 - second:02d}.500+00:00"
    told = {"ts": at, "mono_ns": second * 10**9, "seq": seq, "event": event}
    return json.dumps({**told, **fields})


processes = st.lists(
    st.tuples(st.integers(2, 40), st.sets(st.integers(2, 39))), min_size=1, max_size=5
)


@given(processes)
def test_every_line_that_is_missing_in_between_is_counted(
    found: list[tuple[int, set[int]]],
) -> None:
    """A process numbers from 1; its first and last lines are there, some between are dropped."""
    written, dropped = [], 0
    for length, drawn in found:
        gone = {number for number in drawn if number < length}
        written += [line(number) for number in range(1, length + 1) if number not in gone]
        dropped += len(gone)
    read = logs.Logs()
    logs.add(read, "worker-1", written)
    assert (read.lost, read.processes, read.plain) == (dropped, len(found), 0)
    assert len(read.lines) == len(written)


@given(st.lists(st.text() | st.builds(json.dumps, st.recursive(st.none() | st.text(), st.lists))))
def test_lines_that_are_no_log_lines_are_counted_and_do_no_harm(texts: list[str]) -> None:
    read = logs.Logs()
    logs.add(read, "worker-1", texts)
    assert (read.plain, read.lines, read.lost) == (len(texts), [], 0)


@pytest.mark.parametrize(
    "odd",
    [
        {"ts": "2026-01-01T00:00:00+00:00", "seq": True, "event": "x"},
        {"ts": "2026-01-01T00:00:00+00:00", "seq": 0, "event": "x"},
        {"ts": "2026-01-01T00:00:00", "seq": 1, "event": "x"},
        {"ts": "yesterday", "seq": 1, "event": "x"},
        {"ts": 3, "seq": 1, "event": "x"},
        {"seq": 1, "event": "x"},
    ],
)
def test_a_line_without_a_number_and_a_time_is_no_line(odd: dict[str, object]) -> None:
    read = logs.Logs()
    logs.add(read, "worker-1", [json.dumps(odd)])
    assert (read.plain, len(read.lines)) == (1, 0)


def test_165_spans_pair_the_events_of_one_lease_by_a_clock_that_does_not_jump(
    tmp_path: Path,
) -> None:
    texts = [
        line(1, "lease_claimed", 1, lease_id="a"),
        line(2, "lease_claimed", 2, lease_id="b"),
        line(3, "attempt_started", 5, lease_id="a"),
        line(4, "attempt_started", 6, lease_id="c"),
        json.dumps({**json.loads(line(5, "attempt_started", lease_id="b")), "mono_ns": None}),
    ]
    (tmp_path / "worker-1.log").write_text("\n".join([*texts, "torn {"]), encoding="utf-8")
    read = logs.read(tmp_path)
    assert read.spans("lease_claimed", "attempt_started") == [4.0]
    assert read.plain == 1


def test_a_gap_is_told_in_words() -> None:
    read = logs.Logs()
    logs.add(read, "coordinator", [line(1), line(4)])
    other = logs.Logs()
    logs.add(other, "worker-1", [line(1)])
    assert "3 numbered lines of 2 processes, 2 lost" in logs.together([read, other]).told()
