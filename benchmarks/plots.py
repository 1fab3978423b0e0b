"""Pictures of the rows of a document: distributions, curves over a size, phases of a time.

Each is drawn for a wide and for a narrow screen, with the same in words as its text alternative.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from benchmarks import svg
from benchmarks.render import number
from benchmarks.schema import Row, Series

WIDTHS = {"wide": 680, "narrow": 340}
PHASE = "phase: "
LEAST_POINTS = 3
_SIDE, _LANE, _STRIP = 10, 52, 22
STYLES = 6
_COUNT = re.compile(r"\d+ x ")
_SIZED = re.compile(r"(?P<before>.*?)(?P<size>\d+(?:\.\d+)?)\s*(?P<unit>[A-Za-z]*)(?P<after>.*)")
_SCALE = {
    "kb": 1e-3, "mb": 1.0, "gb": 1e3, "kib": 1.024e-3, "mib": 1.048576, "gib": 1073.741824,
    "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sized:
    """A variant that has a size: `label` is that part of it, `rest` the others."""

    value: float
    label: str
    rest: str
    kind: str


@dataclass(frozen=True, slots=True)
class Line:
    """One curve: for each size the median with its p10 and p90."""

    name: str
    points: tuple[tuple[float, float, float, float], ...]


def pictures(rows: Sequence[Row]) -> list[str]:
    """Return the pictures of all rows of one scenario: curves first, then each row's own.

    The samples behind a curve are folded away.
    """
    groups = curves(rows)
    drawn = [_curve(group) + _folded(group) for group in groups]
    on_curves = [row.key for group in groups for row in group]
    for row in rows:
        own = "" if row.key in on_curves else distribution(row)
        drawn += [picture for picture in (own, phases(row)) if picture]
    return drawn


def distribution(row: Row) -> str:
    """Return every sample of a row beside those of its comparators; empty without any spread."""
    lanes = [series for series in _lanes(row) if series.samples]
    everything = [value for lane in lanes for value in lane.samples]
    if len(set(everything)) < 2 or not row.samples:
        return ""
    told = "; ".join(_told(lane) for lane in lanes)

    def draw(width: int) -> str:
        bottom = _LANE * len(lanes) + 4
        scale = svg.axis(everything, _SIDE + 4, width - _SIDE - 4)
        parts = [svg.open_svg(width, bottom + 34, f"Distribution of {_name(row)}. {told}")]
        parts += _ticks(scale, 0, bottom, row.unit, width)
        for index, lane in enumerate(lanes):
            style = "ours" if index == 0 else "other"
            parts += _lane(lane, scale, _LANE * index, style, width)
        return "".join([*parts, "</svg>"])

    axis = ", logarithmic" if svg.axis(everything, 0, 1).log else ""
    return _figure(
        draw,
        f"{_name(row)}: every sample{axis}. Line: median; bar: p10 to p90; in each lane the first "
        "sample is the topmost, the last the lowest.",
    )


def phases(row: Row) -> str:
    """Return the time line of a duration from the medians of its phases; empty without phases."""
    parts = [each for each in row.series if each.name.startswith(PHASE) and each.median is not None]
    total = sum(each.median or 0.0 for each in parts)
    if len(parts) < 2 or total <= 0 or any((each.median or 0.0) < 0 for each in parts):
        return ""
    named = [
        f"{index}. {each.name.removeprefix(PHASE)}: {number(each.median)} {each.unit} "
        f"({(each.median or 0.0) / total:.0%})"
        for index, each in enumerate(parts, start=1)
    ]

    def draw(width: int) -> str:
        height = 40 + 18 * len(parts)
        label = f"Time line of {_name(row)}, medians. {'; '.join(named)}"
        drawn = [svg.open_svg(width, height, label)]
        at, scale = 0.0, svg.Axis(0.0, total, _SIDE, width - _SIDE)
        for index, each in enumerate(parts):
            end = at + (each.median or 0.0)
            x1, x2 = scale.at(at), scale.at(end)
            drawn.append(svg.box(x1, 4, x2, 28, f"fill{index % STYLES}"))
            if x2 - x1 > 14:
                drawn.append(svg.words((x1 + x2) / 2, 21, str(index + 1), "mid onfill"))
            drawn.append(svg.words(_SIDE, 46 + 18 * index, svg.cut(named[index], width - 20)))
            at = end
        return "".join([*drawn, "</svg>"])

    return _figure(draw, f"{_name(row)}: where the time goes, medians of the phases.")


def curves(rows: Sequence[Row]) -> list[list[Row]]:
    """Return the groups of rows whose variants differ in one size only, smallest first."""
    groups: dict[tuple[str, str, str], list[tuple[float, Row]]] = {}
    for row in rows:
        found = sized(row.variant)
        if found is not None and row.median is not None:
            key = (found.rest, found.kind, row.unit)
            groups.setdefault(key, []).append((found.value, row))
    return [
        [row for _, row in sorted(group, key=lambda each: each[0])]
        for group in groups.values()
        if len({size for size, _ in group}) >= LEAST_POINTS
    ]


def sized(variant: str) -> Sized | None:
    """Return the first number of a variant as its size; a count before it (`16 x`) is passed by."""
    found = _SIZED.fullmatch(_COUNT.sub("", variant, count=1))
    if found is None:
        return None
    unit = found["unit"].lower()
    rest = " ".join(each for part in ("before", "after") if (each := found[part].strip(" ,;:")))
    label = f"{found['size']} {found['unit']}".strip()
    kind = "scaled" if unit in _SCALE else unit
    return Sized(float(found["size"]) * _SCALE.get(unit, 1.0), label, rest, kind)


def _curve(rows: Sequence[Row]) -> str:
    lines = _lines(rows)
    xs = [point[0] for line in lines for point in line.points]
    ys = [value for line in lines for point in line.points for value in point[1:]]
    first, at = rows[0], [_sized(row) for row in rows]
    name = f"{first.scenario} ({at[0].rest})" if at[0].rest else first.scenario
    told = "; ".join(
        f"{line.name}: " + ", ".join(f"{number(point[1])} at {point[0]:g}" for point in line.points)
        for line in lines
    )

    def draw(width: int) -> str:
        top, bottom = 18 * len(lines) + 8, 18 * len(lines) + 210
        across = svg.axis(xs, 58, width - 24)
        up = svg.axis(ys, bottom, top, from_zero=True)
        parts = [svg.open_svg(width, bottom + 40, f"{name} in {first.unit}, medians. {told}")]
        for tick in up.ticks(6):
            y = up.at(tick)
            parts.append(svg.line(58, y, width - 10, y, "tick"))
            parts.append(svg.words(52, y + 4, svg.short(tick), "end dim"))
        parts += _size_ticks(across, at, bottom, width)
        for index, line in enumerate(lines):
            y, style = 12 + 18 * index, index % STYLES
            parts += _line(line, across, up, style)
            parts.append(svg.line(10, y, 34, y, f"curve c{style}"))
            text = svg.cut(line.name, width - 50)
            parts.append(svg.words(40, y + 4, text))
        return "".join([*parts, "</svg>"])

    return _figure(
        draw, f"{name}, {first.unit}, over the size: medians; the bars go from p10 to p90."
    )


def _folded(rows: Sequence[Row]) -> str:
    inside = "".join(map(distribution, rows))
    return f"<details><summary>every sample</summary>{inside}</details>" if inside else ""


def _lines(rows: Sequence[Row]) -> list[Line]:
    points: dict[str, list[tuple[float, float, float, float]]] = {}
    for row in rows:
        for lane in _lanes(row):
            if lane.median is not None and lane.p10 is not None and lane.p90 is not None:
                point = (_sized(row).value, lane.median, lane.p10, lane.p90)
                points.setdefault(lane.name, []).append(point)
    return [Line(name, tuple(each)) for name, each in points.items()]


def _line(line: Line, across: svg.Axis, up: svg.Axis, index: int) -> list[str]:
    places = [(across.at(x), up.at(y), up.at(low), up.at(high)) for x, y, low, high in line.points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y, _, _ in places)
    return [
        f'<polyline class="curve c{index}" points="{path}"/>',
        *(svg.line(x, low, x, high, f"curve solid c{index}") for x, _, low, high in places),
        *(svg.dot(x, y, f"point p{index}", 3.4) for x, y, _, _ in places),
    ]


def _sized(row: Row) -> Sized:
    found = sized(row.variant)
    assert found is not None  # noqa: S101 (only rows of a curve are asked)
    return found


def _size_ticks(across: svg.Axis, at: Sequence[Sized], bottom: float, width: int) -> list[str]:
    drawn, taken = [], -1e9
    for each in at:
        x, half = across.at(each.value), len(each.label) * svg.LETTER / 2
        drawn.append(svg.line(x, bottom, x, bottom + 5, "rail"))
        middle = min(x, width - half)
        if middle - half > taken:
            drawn.append(svg.words(middle, bottom + 20, each.label, "mid dim"))
            taken = middle + half + 6
    return [svg.line(across.begin - 4, bottom, across.end + 10, bottom, "rail"), *drawn]


def _lanes(row: Row) -> list[Series]:
    ours = Series(
        name="flashruntime",
        unit=row.unit,
        samples=row.samples,
        median=row.median,
        p10=row.p10,
        p90=row.p90,
    )
    return [ours, *(each for each in row.series if each.name in row.comparators)]


def _lane(lane: Series, scale: svg.Axis, top: float, style: str, width: int) -> list[str]:
    y1, y2 = top + 20, top + 20 + _STRIP
    median = f"median {number(lane.median)}"
    room = width - 2 * _SIDE - svg.LETTER * (len(median) + 2)
    parts = [
        svg.words(_SIDE, top + 14, svg.cut(lane.name, room), "strong"),
        svg.words(width - _SIDE, top + 14, median, "end"),
        svg.line(scale.begin, (y1 + y2) / 2, scale.end, (y1 + y2) / 2, "rail"),
    ]
    if lane.median is None or lane.p10 is None or lane.p90 is None:
        return parts
    parts.append(svg.box(scale.at(lane.p10), y1, scale.at(lane.p90), y2, f"band {style}"))
    count = len(lane.samples)
    for index, value in enumerate(lane.samples):
        y = (y1 + y2) / 2 if count == 1 else y1 + 3 + (_STRIP - 6) * index / (count - 1)
        parts.append(svg.dot(scale.at(value), y, f"dot {style}"))
    x = scale.at(lane.median)
    return [*parts, svg.line(x, y1 - 2, x, y2 + 2, f"median {style}")]


def _ticks(scale: svg.Axis, top: float, bottom: float, unit: str, width: int) -> list[str]:
    drawn = []
    for tick in scale.ticks(width // 90):
        x = scale.at(tick)
        style = "zero" if tick == 0 else "tick"
        drawn.append(svg.line(x, top + 18, x, bottom, style))
        drawn.append(
            svg.words(min(max(x, 16), width - 16), bottom + 15, svg.short(tick), "mid dim")
        )
    return [*drawn, svg.words(width - _SIDE, bottom + 31, unit, "end dim")]


def _told(lane: Series) -> str:
    spread = f"p10 {number(lane.p10)}, p90 {number(lane.p90)}, {len(lane.samples)} samples"
    return f"{lane.name}: median {number(lane.median)} {lane.unit} ({spread})"


def _name(row: Row) -> str:
    return f"{row.scenario} ({row.variant})" if row.variant else row.scenario


def _figure(draw: Callable[[int], str], caption: str) -> str:
    drawn = "".join(f'<div class="{kind}">{draw(width)}</div>' for kind, width in WIDTHS.items())
    return f'<figure class="bench">{drawn}<figcaption>{escape(caption)}</figcaption></figure>'
