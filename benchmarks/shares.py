"""Shares of outcomes that went well, compared without assuming a distribution.

Sources: Fisher (1922), On the interpretation of chi-square from contingency tables; Wilson (1927),
Probable inference; Newcombe (1998), Interval estimation for the difference between independent
proportions, method 10.
"""

import math
from collections.abc import Mapping, Sequence

from benchmarks import stats
from benchmarks.scenario import Bench, series
from benchmarks.schema import Better, Comparison, Row, Series

Z = 1.959963984540054
_TIE = 1 + 1e-9
_EACH = "each outcome, {}"

Outcomes = Sequence[bool]


def share(outcomes: Outcomes) -> float:
    """Return how much of the outcomes went well; ValueError without outcomes."""
    if not outcomes:
        raise ValueError("a share needs at least one outcome")
    return sum(outcomes) / len(outcomes)


def fisher(ours: Outcomes, theirs: Outcomes) -> float:
    """Return the two-sided p-value of Fisher's exact test."""
    good, count = sum(ours) + sum(theirs), len(ours)
    whole = count + len(theirs)
    ways = {
        each: math.comb(good, each) * math.comb(whole - good, count - each)
        for each in range(max(0, good - len(theirs)), min(good, count) + 1)
    }
    observed = ways[sum(ours)]
    extreme = sum(way for way in ways.values() if way <= observed * _TIE)
    return min(1.0, extreme / sum(ways.values()))


def wilson(outcomes: Outcomes) -> tuple[float, float]:
    """Return the 95 % score interval of a share."""
    count, found = len(outcomes), share(outcomes)
    middle = found + Z * Z / (2 * count)
    spread = Z * math.sqrt(found * (1 - found) / count + Z * Z / (4 * count * count))
    scale = 1 + Z * Z / count
    return max(0.0, (middle - spread) / scale), min(1.0, (middle + spread) / scale)


def difference(ours: Outcomes, theirs: Outcomes) -> tuple[float, float]:
    """Return the 95 % interval of the difference of two shares."""
    a, b = share(ours), share(theirs)
    (low_a, high_a), (low_b, high_b) = wilson(ours), wilson(theirs)
    below = math.hypot(a - low_a, high_b - b)
    above = math.hypot(high_a - a, b - low_b)
    return max(-1.0, a - b - below), min(1.0, a - b + above)


def compared(comparator: str, ours: Outcomes, theirs: Outcomes) -> Comparison:
    """Test two shares and say it in words."""
    p_value, (low, high) = fisher(ours, theirs), difference(ours, theirs)
    apart, base = share(ours) - share(theirs), share(theirs)
    significant = p_value <= stats.ALPHA
    numbers = f"difference {apart:+.3g} [{low:+.3g}, {high:+.3g}], p={p_value:.2g}"
    counts = f"{sum(ours)} of {len(ours)} against {sum(theirs)} of {len(theirs)}"
    return Comparison(
        comparator=comparator,
        paired=False,
        difference=apart,
        ci_low=min(low, apart),
        ci_high=max(high, apart),
        p_value=p_value,
        significant=significant,
        ratio=share(ours) / base if base > 0 else None,
        finding=f"{'significant' if significant else 'not significant'}: {counts}, {numbers}",
    )


def _each(name: str, outcomes: Outcomes) -> Series:
    return series(_EACH.format(name), "1 = well", [float(each) for each in outcomes])


def compared_again(row: Row, comparator: str) -> Comparison | None:
    """Test a row's shares once more from the outcomes in it; None where it has none, or others."""
    outcomes = {each.name: [bool(sample) for sample in each.samples] for each in row.series}
    ours, theirs = (outcomes.get(_EACH.format(name)) for name in ("ours", comparator))
    if not ours or not theirs:
        return None
    stated = row.median, row.comparators.get(comparator)
    return compared(comparator, ours, theirs) if stated == (share(ours), share(theirs)) else None


def report(
    bench: Bench,
    ours: Outcomes,
    others: Mapping[str, Outcomes],
    *,
    variant: str = "",
    figures: Sequence[Series] = (),
    notes: Sequence[str] = (),
) -> None:
    """Hand over a share as one number: one bad outcome of many lowers it, as no median would."""
    if not ours:
        bench.report(None, variant=variant, better=Better.HIGHER, figures=figures, notes=notes)
        return
    found = {name: outcomes for name, outcomes in others.items() if outcomes}
    low, high = wilson(ours)
    told = f"{sum(ours)} of {len(ours)}; the 95 % interval of the share is {low:.3g} to {high:.3g}"
    bench.report(
        [share(ours)],
        variant=variant,
        better=Better.HIGHER,
        comparators={name: [share(outcomes)] for name, outcomes in found.items()},
        figures=[
            *figures,
            *(_each(name, outcomes) for name, outcomes in {"ours": ours, **found}.items()),
        ],
        notes=[told, *notes],
    )
    tests = [compared(name, ours, outcomes) for name, outcomes in found.items()]
    bench.amend(comparisons=tests)
