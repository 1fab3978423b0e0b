"""Which trial is the best, and what a run's logs show."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashruntime.errors import InvalidInput
from flashruntime.sdk.run import best_of


def trial(state: str = "SUCCEEDED", **metrics: Any) -> dict[str, Any]:
    return {"state": state, "params": {}, "attempts": 1, "resumed_from": None, **metrics}


def test_085_a_nan_is_never_the_best_nor_in_its_way() -> None:
    trials = [trial(loss=value) for value in (None, 0.5, 0.4, float("nan"), "0.1", True)]
    assert best_of(trials, "loss", maximize=False) == trial(loss=0.4)
    assert best_of(trials, "loss", maximize=True) == trial(loss=0.5)


@given(st.lists(st.none() | st.floats() | st.integers() | st.booleans() | st.text()), st.booleans())
def test_the_best_is_finite_and_no_other_is_better(values: list[Any], maximize: bool) -> None:
    best = best_of([trial(m=value) for value in values], "m", maximize=maximize)
    numbers = [
        value
        for value in values
        if isinstance(value, int | float)
        and not isinstance(value, bool)
        and abs(value) < float("inf")
    ]
    if best is None:
        assert numbers == []
    else:
        assert best["m"] == (max if maximize else min)(numbers)


def test_a_trial_that_failed_and_a_reserved_name_are_never_the_best() -> None:
    assert best_of([trial("FAILED", m=1), trial(m=0)], "m", maximize=True) == trial(m=0)
    assert best_of([trial(m=1)], "attempts", maximize=True) is None


def test_without_a_metric_the_names_at_hand_are_told() -> None:
    with pytest.raises(InvalidInput, match="acc, loss"):
        best_of([trial(loss=1, acc=2)], None, maximize=True)
