"""Medians, spreads and tests that assume no distribution, in plain Python.

Sources: quantiles of type 7 in Hyndman and Fan (1996), Sample quantiles in statistical packages;
percentile bootstrap in Efron (1979), Bootstrap methods; signed ranks in Wilcoxon (1945),
Individual comparisons by ranking methods; rank sums in Mann and Whitney (1947), On a test of
whether one of two random variables is stochastically larger than the other.
"""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

ALPHA = 0.05
CONFIDENCE = 0.95
BOOTSTRAP_ROUNDS = 2_000
EXACT_LIMIT = 50
LEAST_PAIRS = 6

Samples = Sequence[float]


@dataclass(frozen=True, slots=True)
class Summary:
    """The middle and the spread of samples."""

    median: float
    p10: float
    p90: float


def quantile(samples: Samples, share: float) -> float:
    """Return the value below which `share` of the samples lie, interpolated linearly."""
    if not samples:
        raise ValueError("a quantile needs at least one sample")
    ordered = sorted(samples)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    between = ordered[low] + (ordered[high] - ordered[low]) * (place - low)
    return min(max(between, ordered[low]), ordered[high])


def median(samples: Samples) -> float:
    """Return the middle value."""
    return quantile(samples, 0.5)


def summarise(samples: Samples) -> Summary:
    """Return median, p10 and p90; ValueError without samples."""
    return Summary(median(samples), quantile(samples, 0.1), quantile(samples, 0.9))


def differences(ours: Samples, theirs: Samples) -> list[float]:
    """Return ours minus theirs, pair by pair."""
    return [a - b for a, b in zip(ours, theirs, strict=True)]


def bootstrap(statistic: Callable[[random.Random], float]) -> tuple[float, float]:
    """Return the interval that holds the middle 95 % of a resampled statistic; always the same."""
    draw = random.Random(0)
    values = [statistic(draw) for _ in range(BOOTSTRAP_ROUNDS)]
    tail = (1 - CONFIDENCE) / 2
    return quantile(values, tail), quantile(values, 1 - tail)


def paired_interval(differing: Samples) -> tuple[float, float]:
    """Return the bootstrap confidence interval of the median of paired differences."""
    return bootstrap(lambda draw: median(draw.choices(differing, k=len(differing))))


def unpaired_interval(ours: Samples, theirs: Samples) -> tuple[float, float]:
    """Return the bootstrap confidence interval of the difference of two medians."""

    def resampled(draw: random.Random) -> float:
        a = draw.choices(ours, k=len(ours))
        return median(a) - median(draw.choices(theirs, k=len(theirs)))

    return bootstrap(resampled)


def signed_rank(differing: Samples) -> float:
    """Return the two-sided p-value of Wilcoxon's signed-rank test; differences of 0 say nothing.

    Exact given the ties up to EXACT_LIMIT differences, beyond it by the normal approximation.
    """
    told = [each for each in differing if each != 0]
    if not told:
        return 1.0
    ranks = doubled_ranks([abs(each) for each in told])
    positive = sum(rank for rank, each in zip(ranks, told, strict=True) if each > 0)
    if len(told) > EXACT_LIMIT:
        variance = sum(rank * rank for rank in ranks) / 4
        return _normal(positive - sum(ranks) / 2, variance)
    ways = [1] + [0] * sum(ranks)
    for rank in ranks:
        for total in range(len(ways) - 1, rank - 1, -1):
            ways[total] += ways[total - rank]
    return _two_sided(ways, positive)


def rank_sum(ours: Samples, theirs: Samples) -> float:
    """Return the two-sided p-value of the Mann-Whitney test of two independent sets of samples.

    Exact given the ties up to EXACT_LIMIT samples, beyond it by the normal approximation.
    """
    if not ours or not theirs:
        raise ValueError("a rank test needs samples on both sides")
    ranks = doubled_ranks([*ours, *theirs])
    count, total = len(ours), len(ranks)
    got = sum(ranks[:count])
    if total > EXACT_LIMIT:
        mean = sum(ranks) / total
        spread = sum((rank - mean) ** 2 for rank in ranks)
        return _normal(got - count * mean, spread * count * (total - count) / total / (total - 1))
    ways = [[1] + [0] * sum(ranks)] + [[0] * (sum(ranks) + 1) for _ in range(count)]
    for rank in ranks:
        for taken in range(count, 0, -1):
            row, before = ways[taken], ways[taken - 1]
            for place in range(len(row) - 1, rank - 1, -1):
                row[place] += before[place - rank]
    return _two_sided(ways[count], got)


def doubled_ranks(values: Samples) -> list[int]:
    """Return twice the rank of each value, equal values sharing the mean of theirs."""
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks = [0] * len(values)
    begin = 0
    for _, group in groupby(order, key=values.__getitem__):
        tied = list(group)
        for place in tied:
            ranks[place] = 2 * begin + len(tied) + 1
        begin += len(tied)
    return ranks


def _two_sided(ways: Sequence[int], got: int) -> float:
    """Return the share of outcomes that lie at least as far out as `got`, on its side, twice."""
    everything = sum(ways)
    return min(1.0, 2 * min(sum(ways[: got + 1]), sum(ways[got:])) / everything)


def _normal(distance: float, variance: float) -> float:
    """Return the two-sided p-value of a sum of doubled ranks, corrected for continuity."""
    if variance <= 0:
        return 1.0
    return math.erfc(max(0.0, abs(distance) - 1) / math.sqrt(2 * variance))
