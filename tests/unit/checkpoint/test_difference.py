"""Two checkpoints, or two values, are told apart bit for bit, and what differs has a name."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashruntime.checkpoint import Chain, Claim, Resume, Snapshot
from flashruntime.checkpoint.difference import (
    compare_parts,
    compare_values,
    same_bits,
    same_parts,
    walk,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


def checkpoint(root: Path, **parts: bytes) -> Resume:
    chain = Chain.begin(root, Claim("a-1", "job"))
    chain.save(Snapshot(7, {name.replace("_", "."): data for name, data in parts.items()}))
    found = chain.resume()
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("first", "second"), [(0.0, -0.0), (1, True), (1, 1.0), (None, False), ("1", 1)]
)
def test_values_that_compare_equal_may_still_differ(first: Any, second: Any) -> None:
    assert not same_bits(first, second)


def test_nan_equals_nan() -> None:
    assert same_bits(math.nan, math.nan)
    assert same_bits(math.nan, -math.nan), "JSON keeps no sign of a NaN"


@given(JSON)
def test_a_value_never_differs_from_its_copy(value: Any) -> None:
    assert list(walk(value, json.loads(json.dumps(value)))) == []


def test_each_difference_is_named_by_its_place() -> None:
    first = {"a": [1, 2, {"b": 3}], "only": 1, "same": "x"}
    second = {"a": [1, 2, {"b": 4}, 5], "new": None, "same": "x"}
    found = compare_values("metric", first, second)
    assert [(each.what, each.detail) for each in found] == [
        ("metric.a.2.b", "4 instead of 3"),
        ("metric.a.3", "5 instead of absent"),
        ("metric.only", "absent instead of 1"),
        ("metric.new", "None instead of absent"),
    ]


def test_equal_checkpoints_have_no_difference_and_say_what_was_compared(tmp_path: Path) -> None:
    first = checkpoint(tmp_path / "a", weights_bin=b"\0\1\2")
    second = checkpoint(tmp_path / "b", weights_bin=b"\0\1\2")
    assert same_parts(first.parts, second.parts)
    found = compare_parts(first, second)
    assert found.differences == []
    assert found.facts == ["1 parts, 3 bytes"]


def test_parts_that_differ_are_named_with_the_place_inside(tmp_path: Path) -> None:
    first = checkpoint(
        tmp_path / "a", w_bin=b"\0\1\2", rng_json=b'{"python": [3, 4]}', n_bin=b"12", o_bin=b"1"
    )
    second = checkpoint(
        tmp_path / "b", w_bin=b"\0\1\3", rng_json=b'{"python": [3, 5]}', n_bin=b"1", p_bin=b"1"
    )
    found = {each.what: each.detail for each in compare_parts(first, second).differences}
    assert found == {
        "part n.bin": "1 bytes instead of 2",
        "part o.bin": "absent",
        "part p.bin": "there, though the undisturbed run has none",
        "part rng.json.python.1": "5 instead of 4",
        "part w.bin": "differs from byte 2 of 3 on",
    }


def test_json_of_equal_content_but_other_bytes_still_differs(tmp_path: Path) -> None:
    first = checkpoint(tmp_path / "a", s_json=b'{"a": 1}')
    second = checkpoint(tmp_path / "b", s_json=b'{"a":  1}')
    assert [each.what for each in compare_parts(first, second).differences] == ["part s.json"]
