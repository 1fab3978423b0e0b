"""Medians, intervals and rank tests."""

import random
import statistics
from itertools import combinations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import stats

numbers = st.floats(-1e6, 1e6, allow_subnormal=False)
several = st.lists(numbers, min_size=1, max_size=15)
few = st.lists(st.integers(-4, 4).map(float), min_size=1, max_size=8)


@settings(deadline=None, max_examples=50)
@given(several)
def test_the_median_is_that_of_the_standard_library(samples: list[float]) -> None:
    assert stats.median(samples) == pytest.approx(statistics.median(samples), abs=1e-9)


@settings(deadline=None, max_examples=50)
@given(several, st.floats(0, 1), st.floats(0, 1))
def test_quantiles_stay_within_the_samples_and_rise(
    samples: list[float], one: float, other: float
) -> None:
    low, high = sorted((stats.quantile(samples, one), stats.quantile(samples, other)))
    assert min(samples) <= low <= high <= max(samples)
    if one <= other:
        assert stats.quantile(samples, one) <= stats.quantile(samples, other)


@settings(deadline=None, max_examples=50)
@given(several)
def test_the_order_of_the_samples_does_not_matter(samples: list[float]) -> None:
    shuffled = random.Random(1).sample(samples, len(samples))
    assert stats.summarise(samples) == stats.summarise(shuffled)


def test_nothing_has_no_median() -> None:
    with pytest.raises(ValueError, match="at least one sample"):
        stats.median([])


@settings(deadline=None, max_examples=50)
@given(st.lists(numbers, min_size=1, max_size=12))
def test_a_confidence_interval_lies_within_the_samples(differing: list[float]) -> None:
    low, high = stats.paired_interval(differing)
    assert min(differing) <= low <= high <= max(differing)


@settings(deadline=None, max_examples=50)
@given(few)
def test_signed_ranks_agree_with_every_choice_of_signs(differing: list[float]) -> None:
    told = [abs(each) for each in differing if each]
    ranks = stats.doubled_ranks(told)
    got = sum(r for r, each in zip(ranks, [d for d in differing if d], strict=True) if each > 0)
    sums = [
        sum(r for r, up in zip(ranks, signs, strict=True) if up)
        for signs in product((False, True), repeat=len(ranks))
    ]
    tail = min(sum(s <= got for s in sums), sum(s >= got for s in sums)) / len(sums)
    assert stats.signed_rank(differing) == pytest.approx(min(1.0, 2 * tail))


@settings(deadline=None, max_examples=50)
@given(few, few)
def test_rank_sums_agree_with_every_division_of_the_samples(
    ours: list[float], theirs: list[float]
) -> None:
    ranks = stats.doubled_ranks([*ours, *theirs])
    got = sum(ranks[: len(ours)])
    sums = [sum(chosen) for chosen in combinations(ranks, len(ours))]
    tail = min(sum(s <= got for s in sums), sum(s >= got for s in sums)) / len(sums)
    assert stats.rank_sum(ours, theirs) == pytest.approx(min(1.0, 2 * tail))


@settings(deadline=None, max_examples=50)
@given(several, several)
def test_a_rank_test_is_a_probability_and_knows_no_first(
    ours: list[float], theirs: list[float]
) -> None:
    p_value = stats.rank_sum(ours, theirs)
    assert 0 < p_value <= 1
    assert p_value == pytest.approx(stats.rank_sum(theirs, ours))


@settings(deadline=None, max_examples=50)
@given(st.lists(numbers, min_size=51, max_size=70))
def test_many_samples_are_tested_by_approximation(differing: list[float]) -> None:
    assert 0 <= stats.signed_rank(differing) <= 1
    mirrored = [-each for each in differing]
    assert stats.signed_rank(differing) == pytest.approx(stats.signed_rank(mirrored))


def test_the_approximation_is_near_the_exact_test() -> None:
    draw = random.Random(3)
    differing = [draw.gauss(0.2, 1) for _ in range(stats.EXACT_LIMIT)]
    exact = stats.signed_rank(differing)
    ranks = stats.doubled_ranks([abs(each) for each in differing])
    positive = sum(r for r, each in zip(ranks, differing, strict=True) if each > 0)
    normal = stats._normal(positive - sum(ranks) / 2, sum(r * r for r in ranks) / 4)
    assert normal == pytest.approx(exact, abs=0.01)


@pytest.mark.parametrize(("shift", "rejected"), [(0.0, (0, 12)), (2.0, (90, 100))])
def test_chance_is_rejected_rarely_and_a_real_difference_nearly_always(
    shift: float, rejected: tuple[int, int]
) -> None:
    draw = random.Random(5)
    count = 0
    for _ in range(100):
        ours = [draw.gauss(shift, 1) for _ in range(10)]
        count += stats.rank_sum(ours, [draw.gauss(0, 1) for _ in range(10)]) <= stats.ALPHA
    assert rejected[0] <= count <= rejected[1]


def test_equal_samples_differ_by_nothing() -> None:
    assert stats.signed_rank([0.0, 0.0]) == 1.0
    assert stats.rank_sum([1.0, 1.0], [1.0, 1.0]) == 1.0
