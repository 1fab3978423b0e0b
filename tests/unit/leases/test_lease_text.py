"""Strict JSON, valid Unicode, and the fingerprint of a failure."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashruntime.errors import InvalidInput
from flashruntime.leases.jsontext import clean, dumps
from flashruntime.protocol.budget import fingerprint
from flashruntime.protocol.failures import EndedBy, Evidence

ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | ANY_TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(ANY_TEXT, inner),
    max_leaves=10,
)


@given(ANY_TEXT)
def test_cleaned_text_is_valid_and_valid_text_is_kept(text: str) -> None:
    cleaned = clean(text)
    cleaned.encode("utf-8")
    assert clean(cleaned) == cleaned
    if not any(0xD800 <= ord(character) <= 0xDFFF for character in text):
        assert cleaned == text


@given(JSON)
def test_whatever_is_dumped_can_be_sent_on_as_utf8(value: object) -> None:
    again = json.loads(dumps(value, "value"))  # type: ignore[arg-type]
    json.dumps(again, ensure_ascii=False, allow_nan=False).encode("utf-8")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [{"a": float("-inf")}]])
def test_what_json_cannot_say_is_refused_by_name(value: object) -> None:
    with pytest.raises(InvalidInput, match="metrics"):
        dumps(value, "metrics")  # type: ignore[arg-type]


def died(message: str = "", **more: object) -> Evidence:
    given_fields = {"ended_by": EndedBy.EXIT, "exit_code": 1, "message": message, **more}
    return Evidence.model_validate(given_fields)


def test_numbers_and_addresses_do_not_tell_failures_apart() -> None:
    first = fingerprint(died("bad shape 12 at 0x7f00a"), 4)
    assert first == fingerprint(died("bad shape 99 at 0x7f11b"), 4)
    assert first != fingerprint(died("bad dtype 12 at 0x7f00a"), 4)
    assert first != fingerprint(died("bad shape 12 at 0x7f00a"), 5)


@pytest.mark.parametrize(
    "evidence",
    [
        Evidence(ended_by=EndedBy.SIGNAL, signal=9),
        Evidence(ended_by=EndedBy.SIGNAL, signal=15),
        Evidence(ended_by=EndedBy.STOPPED),
        Evidence(ended_by=EndedBy.WORKER_ERROR),
    ],
)
def test_what_came_from_outside_has_no_fingerprint(evidence: Evidence) -> None:
    assert fingerprint(evidence, 4) is None


def test_an_unknown_step_is_a_mark_of_its_own() -> None:
    """Two failures at unknown steps may be one, which then takes more of them to believe."""
    unknown = fingerprint(died("x"), None)
    assert unknown == fingerprint(died("x"), None)
    assert unknown not in {fingerprint(died("x"), 0), fingerprint(died("x"), 4)}
