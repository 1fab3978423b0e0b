"""Detection times beside their bound, in the words of every scenario that has them."""

from collections.abc import Sequence

from benchmarks import faults
from benchmarks.scenario import Bench
from benchmarks.schema import Interval, Series

LEASE_S = 60.0
HALF_S, MOST_S = 0.1, 0.25
CLAIMABLE = "the coordinator's event that its task can be claimed again"


def report(
    bench: Bench, detected: Sequence[float], start: str, figures: Sequence[Series], *, variant: str
) -> None:
    """Hand over detection times; one beyond what is promised of 99 in 100 is a finding."""
    late = [each for each in detected if each > MOST_S]
    ordered = sorted(detected)
    bench.report(
        detected,
        variant=variant,
        figures=figures,
        notes=[
            f"promised: half within {HALF_S:g} s and 99 in 100 within {MOST_S:g} s, with a lease "
            f"of {LEASE_S:g} s; {len(detected) - len(late)} of {len(detected)} were within "
            f"{MOST_S:g} s",
            *_extremes(ordered),
            "the socket of a dead worker's session tells, and its grace of 0.05 s is in the "
            "figure; the lease is for partitions and hangs",
            *faults.findings([f"detected after {each:.2f} s" for each in late]),
        ],
    )
    bench.amend(interval=Interval(start=start, end=CLAIMABLE))


def _extremes(ordered: Sequence[float]) -> list[str]:
    """Say the 99th percentile and the slowest, where there are enough to have one."""
    if len(ordered) < 100:
        return []
    p99 = ordered[-(-99 * len(ordered) // 100) - 1]
    return [f"of {len(ordered)}: 99 in 100 within {p99:.3f} s, the slowest {ordered[-1]:.3f} s"]
