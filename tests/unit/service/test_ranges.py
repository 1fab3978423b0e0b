"""The Range header."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashruntime.service.errors import UnsatisfiableRange
from flashruntime.service.ranges import selected


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, None),
        ("bytes=0-0", (0, 1)),
        ("bytes=2-", (2, 10)),
        ("bytes=2-99", (2, 10)),
        ("bytes=-3", (7, 10)),
        ("bytes=-99", (0, 10)),
        ("BYTES=1-2", (1, 3)),
        ("bytes=1-" + "9" * 60, (1, 10)),
        ("bytes=0-1,4-5", None),
        ("bytes=5-2", None),
        ("bytes=-", None),
        ("bytes=a-b", None),
        ("bytes=+1-2", None),
        ("bytes=\u0661-2", None),
        ("rows=0-1", None),
        ("", None),
    ],
)
def test_one_range_is_served_and_what_is_malformed_or_several_is_ignored(
    header: str | None, expected: tuple[int, int] | None
) -> None:
    assert selected(header, 10) == expected


@pytest.mark.parametrize("header", ["bytes=10-", "bytes=99-100", "bytes=-0", f"bytes={10**50}-"])
def test_a_range_beyond_the_end_is_unsatisfiable(header: str) -> None:
    with pytest.raises(UnsatisfiableRange):
        selected(header, 10)


def test_no_byte_of_nothing_can_be_selected() -> None:
    for header in ("bytes=0-", "bytes=0-0", "bytes=-1"):
        with pytest.raises(UnsatisfiableRange):
            selected(header, 0)


@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 20))
def test_a_range_is_what_slicing_gives(first: int, last: int, size: int) -> None:
    data = bytes(range(size))
    try:
        part = selected(f"bytes={first}-{last}", size)
    except UnsatisfiableRange:
        assert first >= size
        return
    start, end = part or (0, size)
    assert data[start:end] == (data[first : last + 1] if last >= first else data)
