"""Where a time stands on a canvas, and how many things are drawn there at most."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

SIDE = 10
NS = 1_000_000_000
MOST_LANES = 16
"""More lanes than these are summed up in one."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Where a time stands on a canvas."""

    begin_ns: int
    end_ns: int
    width: int

    def x(self, at_ns: int) -> float:
        """Return the place of a time, the nearest on the canvas where it lies outside."""
        share = (at_ns - self.begin_ns) / (self.end_ns - self.begin_ns)
        return SIDE + (self.width - 2 * SIDE) * min(1.0, max(0.0, share))


def axis(scale: Scale, top: int, height: int) -> list[str]:
    """Draw the seconds since the beginning."""
    total_s = (scale.end_ns - scale.begin_ns) / NS
    steps, most = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 3600), scale.width // 75
    step_s = next((step for step in steps if total_s / step <= most), int(total_s / most) + 1)
    ticks = []
    for tick in range(0, int(total_s) + 1, step_s):
        x = scale.x(scale.begin_ns + tick * NS)
        ticks.append(
            f'<line class="tick" x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{height - 22}"/>'
            f'<text class="time" x="{max(x, 14):.1f}" y="{height - 8}">{tick} s</text>'
        )
    return ticks


def strokes(scale: Scale, times: Iterable[int], y: int, height: int) -> str:
    """Return the path of one stroke for each time; those of one pixel are one stroke."""
    places = sorted({round(scale.x(at_ns)) for at_ns in times})
    return "".join(f"M{x} {y}v{height}" for x in places)


def thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return a curve of which each pixel keeps its first, lowest, highest and last point."""
    columns: dict[int, list[tuple[float, float]]] = {}
    for point in points:
        columns.setdefault(int(point[0]), []).append(point)
    kept: list[tuple[float, float]] = []
    for column in columns.values():
        low, high = (pick(column, key=lambda point: point[1]) for pick in (min, max))
        found = {column[0], low, high, column[-1]}
        kept += [point for point in dict.fromkeys(column) if point in found]
    return kept


def line(points: Sequence[tuple[float, float]]) -> str:
    """Return the path through points."""
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
