"""Shares of outcomes: tests that assume no distribution, and one number that one failure lowers."""

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import shares
from benchmarks.scenario import Bench

outcomes = st.lists(st.booleans(), min_size=1, max_size=30)


def of(good: int, count: int) -> list[bool]:
    return [True] * good + [False] * (count - good)


def test_fisher_gives_the_known_values() -> None:
    assert shares.fisher(of(3, 4), of(1, 4)) == pytest.approx(34 / 70)
    assert shares.fisher(of(20, 20), of(0, 20)) == pytest.approx(2 / math.comb(40, 20))
    assert shares.fisher(of(1, 9), of(11, 15)) == pytest.approx(0.0094, abs=5e-4)


def test_wilson_gives_the_known_values() -> None:
    assert shares.wilson(of(20, 20)) == pytest.approx((0.8389, 1.0), abs=1e-4)
    assert shares.wilson(of(5, 10)) == pytest.approx((0.2366, 0.7634), abs=1e-4)


@given(ours=outcomes, theirs=outcomes)
def test_tests_of_shares_keep_their_laws(ours: list[bool], theirs: list[bool]) -> None:
    """Order and sides do not matter, intervals hold what they speak of."""
    p_value = shares.fisher(ours, theirs)
    assert 0 < p_value <= 1
    assert shares.fisher(theirs, ours) == pytest.approx(p_value)
    assert shares.fisher(sorted(ours), theirs) == pytest.approx(p_value)
    low, high = shares.wilson(ours)
    assert 0 <= low <= shares.share(ours) + 1e-12
    assert shares.share(ours) - 1e-12 <= high <= 1
    below, above = shares.difference(ours, theirs)
    apart = shares.share(ours) - shares.share(theirs)
    assert below - 1e-12 <= apart <= above + 1e-12


@given(ours=outcomes)
def test_equal_shares_never_differ(ours: list[bool]) -> None:
    assert shares.fisher(ours, ours) == pytest.approx(1.0)
    assert not shares.compared("same", ours, ours).significant


def test_a_single_failure_lowers_the_number(bench: Callable[..., Bench]) -> None:
    here = bench()
    shares.report(here, of(19, 20), {"naive": of(0, 20), "absent": []})
    [row] = here.rows
    assert row.median == pytest.approx(0.95)
    assert row.comparators == {"naive": 0.0}
    assert row.comparisons[0].significant
    assert "19 of 20" in row.notes[0]


def test_a_finding_is_borne_out_by_the_outcomes_beside_it(bench: Callable[..., Bench]) -> None:
    here = bench()
    shares.report(here, of(19, 20), {"naive": of(0, 20)})
    [row] = here.rows
    assert shares.compared_again(row, "naive") == row.comparisons[0]
    for change in ({"median": 1.0}, {"comparators": {"naive": 0.1}}, {"series": []}):
        assert shares.compared_again(row.model_copy(update=change), "naive") is None


def test_without_one_outcome_there_is_no_share(bench: Callable[..., Bench]) -> None:
    here = bench()
    shares.report(here, [], {}, notes=["no kill hit the window"])
    assert (here.rows[0].median, here.rows[0].reason) == (None, "no kill hit the window")
