"""The hint that the last line of the output gives about a failure that nothing else explains."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashruntime.protocol.failures import EndedBy, Evidence, History
from flashruntime.recovery import decide
from flashruntime.recovery.hint import MAX_WORDS

BARE = "exit code 2, no error found in its log [rule bare-exit]"
HINT = " (not evidence, its last line was: "


def reason_of(log_tail: str | None, **fields: Any) -> str:
    known = {"ended_by": EndedBy.EXIT, "exit_code": 2, "log_tail": log_tail} | fields
    return decide(Evidence.model_validate(known), History(max_errors=3)).reason


@pytest.mark.parametrize(
    ("log_tail", "words"),
    [
        ("usage: x\n--lr is required\n\n  \n", "--lr is required"),
        ("\x1b[31;1mno\x1b[0m such\tfile\x07", "no such file"),
        ("\x9b31mred\u202e", "31mred"),
        ("ab" * 500, "ab" * 98 + "a..."),
    ],
)
def test_the_last_line_that_says_something_is_quoted(log_tail: str, words: str) -> None:
    assert reason_of(log_tail) == f"{BARE}{HINT}{words})"


@pytest.mark.parametrize("log_tail", [None, "", " \n\x1b[0m\n\x00"])
def test_output_that_says_nothing_adds_nothing(log_tail: str | None) -> None:
    assert reason_of(log_tail) == BARE


@pytest.mark.parametrize(
    "fields",
    [
        {"message": "bad", "error_type": "ValueError"},
        {"ended_by": EndedBy.SIGNAL, "exit_code": None, "signal": 9},
        {"ended_by": EndedBy.MISSING_OUTPUTS, "exit_code": 0},
        {"ended_by": EndedBy.STOPPED},
        {"log_tail": "usage: x\nx: error: --lr is required\n"},
    ],
)
def test_a_failure_that_is_explained_needs_no_hint(fields: dict[str, Any]) -> None:
    assert HINT not in reason_of(fields.pop("log_tail", "some line"), **fields)


@given(st.text())
def test_a_hint_is_one_bounded_printable_line(log_tail: str) -> None:
    reason = reason_of(log_tail)
    assert reason.isprintable()
    assert len(reason) <= len(BARE) + len(HINT) + MAX_WORDS + 1
