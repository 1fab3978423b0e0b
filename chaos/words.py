"""Words for people."""

from collections.abc import Sequence


def counted(number: int, noun: str) -> str:
    """Return a number with its noun in the right form: 1 claim, 2 claims."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def within(told: Sequence[str], bounds_s: Sequence[float]) -> str:
    """Return what was measured of lost holders, each with its bound in seconds."""
    pairs = zip(told, bounds_s, strict=True)
    measured = [f"{each} (at most {bound_s:g} s allowed)" for each, bound_s in pairs]
    return "; ".join(measured) or "no holder was lost, so there was nothing to measure"
