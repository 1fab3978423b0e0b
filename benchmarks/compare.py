"""Two documents of like hosts beside each other: what got better, worse, or cannot be told apart.

As in pyperf's compare command, unlike hosts are refused and "not significant" stands before any
ratio.
"""

from dataclasses import dataclass

from benchmarks.scenario import compared
from benchmarks.schema import Better, Document, Host, Row, UsageError

RAM_SHARE = 0.1
_SAME = ("os", "cpu", "cores", "torch", "kernel", "gpu", "disk")


@dataclass(frozen=True, slots=True)
class Change:
    """What became of one figure; `finding` is better, worse, not significant or not comparable."""

    name: str
    unit: str
    before: float | None
    after: float | None
    finding: str
    detail: str


def unlike(a: Host, b: Host) -> list[str]:
    """Return in words what differs between two machines; nothing where they may be compared."""
    told = [
        f"{name}: {getattr(a, name)} and {getattr(b, name)}"
        for name in _SAME
        if getattr(a, name) != getattr(b, name)
    ]
    if _minor(a.python) != _minor(b.python):
        told.append(f"python: {a.python} and {b.python}")
    if abs(a.ram_gb - b.ram_gb) > RAM_SHARE * max(a.ram_gb, b.ram_gb):
        told.append(f"ram_gb: {a.ram_gb:g} and {b.ram_gb:g}")
    if (a.place == "host") != (b.place == "host"):
        told.append(f"place: {a.place} and {b.place}")
    return told


def compare(before: Document, after: Document) -> list[Change]:
    """Return what changed, figure by figure; UsageError for unlike hosts or a smoke."""
    if differing := unlike(before.host, after.host):
        raise UsageError(
            "these were measured on unlike hosts and cannot be compared: " + "; ".join(differing)
        )
    if before.smoke != after.smoke:
        raise UsageError("one of the two is a smoke run: measure both without --smoke")
    earlier = {row.key: row for row in before.rows}
    later = {row.key: row for row in after.rows}
    return [
        _change(" ".join(filter(None, key)), earlier.get(key), later.get(key))
        for key in dict.fromkeys([*earlier, *later])
    ]


def _change(name: str, before: Row | None, after: Row | None) -> Change:
    row = after or before
    assert row is not None  # noqa: S101 (a key comes from one of the two)
    medians = (before.median if before else None, after.median if after else None)
    numbers = (name, row.unit, *medians)
    if before is None or after is None:
        missing = "the first" if before is None else "the second"
        return Change(*numbers, "not comparable", f"{missing} document does not have it")
    if before.unit != after.unit:
        return Change(*numbers, "not comparable", f"units: {before.unit} and {after.unit}")
    if not before.samples or not after.samples:
        reason = before.reason or after.reason or "no samples"
        return Change(*numbers, "not comparable", reason)
    test = compared("before", after.samples, before.samples, paired=False)
    if not test.significant:
        return Change(*numbers, "not significant", test.finding)
    improved = (test.difference < 0) == (row.better is Better.LOWER)
    return Change(*numbers, "better" if improved else "worse", test.finding)


def _minor(version: str) -> tuple[str, ...]:
    return tuple(version.split(".")[:2])
