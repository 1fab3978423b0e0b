"""Detection times beside their bound, in the words of every scenario that has them."""

from collections.abc import Sequence

from benchmarks import faults
from benchmarks.scenario import Bench
from benchmarks.schema import Interval, Series

LEASE_S = 3.0
MARGIN_S = 2.0
BOUND_S = LEASE_S + MARGIN_S
CLAIMABLE = "the coordinator's event that its task can be claimed again"


def report(
    bench: Bench, detected: Sequence[float], start: str, figures: Sequence[Series], *, variant: str
) -> None:
    """Hand over detection times; one beyond the bound is a finding."""
    late = [each for each in detected if each > BOUND_S]
    bench.report(
        detected,
        variant=variant,
        figures=figures,
        notes=[
            f"promised: at most the lease of {LEASE_S:g} s and {MARGIN_S:g} s; "
            f"{len(detected) - len(late)} of {len(detected)} were",
            "it scales with the lease that a deployment chooses, less the time since the last "
            "heartbeat",
            *faults.findings([f"detected after {each:.2f} s" for each in late]),
        ],
    )
    bench.amend(interval=Interval(start=start, end=CLAIMABLE))
