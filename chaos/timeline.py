"""The time line of a run as inline SVG: faults as bands over leases, heartbeats, steps and loss."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from chaos.drawing import bands, curves
from chaos.drawing.canvas import MOST_LANES, NS, SIDE, Scale, axis, line, strokes
from chaos.drawing.marks import Mark, Span, fault_marks, holders, job_marks, leases
from chaos.history import History
from chaos.page import safe
from chaos.words import counted

LANE, TOP, BAR, STRIP = 84, 18, 18, bands.ROW * bands.ROWS + 8
LETTER, DOT = 6.2, 6
WORST = ("bad", "warn", "good")
NO_TIMES: Mapping[str, Sequence[int]] = {}

__all__ = ["Mark", "holders", "render", "told"]


@dataclass(frozen=True, slots=True)
class Drawing:
    """Everything that a time line shows."""

    marks: Sequence[Mark]
    spans: Sequence[Span]
    faults: tuple[bands.Band, ...]
    steps: tuple[curves.Curve, ...]
    losses: tuple[curves.Curve, ...]
    heard: curves.Heard
    lanes: tuple[str, ...]
    hidden: tuple[str, ...]

    @classmethod
    def of(cls, history: History, unanswered: Mapping[str, Sequence[int]]) -> "Drawing":
        """Read it from a history; more lanes than there is room for are `hidden`."""
        marks, faults, made = job_marks(history), bands.bands(history), curves.steps(history)
        lanes = [*dict.fromkeys(mark.lane for mark in marks)]
        hurt = _hurt(history)
        ranked = sorted(lanes, key=lambda lane: lane not in hurt)[:MOST_LANES]
        shown = tuple(lane for lane in lanes if lane in ranked)
        seen = [curve for curve in made if curve.lane in shown]
        return cls(
            marks,
            leases(history),
            faults,
            tuple(seen),
            curves.losses(history, seen),
            curves.heartbeats(history, made, unanswered),
            shown,
            tuple(lane for lane in lanes if lane not in ranked),
        )

    def scale(self, width: int) -> Scale:
        """Return a scale from the first of what happened to the last."""
        begins = [mark.at_ns for mark in self.marks] + [band.begin_ns for band in self.faults]
        ends = [span.end_ns for span in self.spans] + [band.end_ns for band in self.faults]
        return Scale(min(begins), max([*begins, *ends]) + 1, width)


def _hurt(history: History) -> set[str]:
    """Return the lanes whose leases faults took away or worked on."""
    receipts = history.of("fault_receipt")
    tasks = {str(receipt.get("lost_lease_id")) for receipt in receipts}
    return {
        f"job {history.lanes.get(str(event.task_id), '?')}"
        for event in history.events()
        if event.type == "LEASE_CLAIMED" and event.lease_id in tasks
    }


def render(history: History, width: int, unanswered: Mapping[str, Sequence[int]] = NO_TIMES) -> str:
    """Return the SVG, or an empty string where nothing of interest happened.

    `unanswered` is lease id -> when its heartbeats had no answer.
    """
    drawing = Drawing.of(history, unanswered)
    if not drawing.marks and not drawing.faults:
        return ""
    scale = drawing.scale(width)
    strip = STRIP if drawing.faults else 0
    lanes_end = TOP + strip + LANE * len(drawing.lanes)
    body, bottom = _below(drawing, scale, lanes_end)
    height = bottom + 30
    parts = [f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="Time line of the run">']
    parts += axis(scale, TOP, height)
    parts += bands.drawn(drawing.faults, scale, TOP, bottom)
    for index, lane in enumerate(drawing.lanes):
        parts += _lane(drawing, lane, scale, TOP + strip + LANE * index)
    return "\n".join([*parts, *body, "</svg>"])


def _below(drawing: Drawing, scale: Scale, top: int) -> tuple[list[str], int]:
    """Draw what stands below the lanes; return it with where it ends."""
    parts: list[str] = []
    if drawing.hidden:
        parts += _summed(drawing, scale, top)
        top += LANE
    for title, found in (
        ("steps heard of, a curve for each attempt", drawing.steps),
        ("loss, where the job's log tells it", drawing.losses),
    ):
        if drawn := curves.chart(title, found, scale, top):
            parts += drawn
            top += curves.HEIGHT
    return parts, top


def _lane(drawing: Drawing, lane: str, scale: Scale, y: int) -> list[str]:
    """Draw a job: its leases, what happened to it, and below them its heartbeats."""
    right = scale.width - SIDE
    parts = [
        f'<text class="lane" x="{SIDE}" y="{y + 13}">{safe(lane)}</text>',
        f'<line class="rail" x1="{SIDE}" x2="{right}" y1="{y + 41}" y2="{y + 41}"/>',
    ]
    parts += _spans([span for span in drawing.spans if span.lane == lane], scale, y + 32)
    for name, times in (("heard", drawing.heard.heard), ("unheard", drawing.heard.unanswered)):
        if path := strokes(scale, times.get(lane, ()), y + 53, 6):
            parts.append(f'<path class="{name}" d="{path}"/>')
    return parts + _lane_marks([mark for mark in drawing.marks if mark.lane == lane], scale, y)


def _summed(drawing: Drawing, scale: Scale, y: int) -> list[str]:
    """Draw how many leases are live in the lanes that have no room of their own."""
    hidden = set(drawing.hidden)
    changes = sorted(
        change
        for span in drawing.spans
        if span.lane in hidden
        for change in ((span.begin_ns, 1), (span.end_ns, -1))
    )
    live, levels = 0, [(scale.x(scale.begin_ns), 0)]
    for at_ns, by in changes:
        live += by
        x = scale.x(at_ns)
        if levels[-1][0] >= x - 0.5 and len(levels) > 1:
            levels[-1] = (levels[-1][0], max(levels[-1][1], live))
        else:
            levels.append((x, live))
    most = max(level for _, level in levels) or 1
    base = y + 64
    points = [(SIDE, base), *_stairs(levels, base, 44 / most), (scale.width - SIDE, base)]
    label = f"{counted(len(hidden), 'lane')} more: leases held there, at most {most} at a time"
    return [
        f'<text class="lane" x="{SIDE}" y="{y + 13}">{safe(label)}</text>',
        f'<path class="summed" d="{line(points)}Z"><title>{safe(label)}</title></path>',
    ]


def _stairs(
    levels: Sequence[tuple[float, int]], base: int, unit: float
) -> Iterable[tuple[float, float]]:
    before = 0
    for x, level in levels:
        yield x, base - before * unit
        yield x, base - level * unit
        before = level


def told(history: History) -> list[tuple[float, Mark]]:
    """Return what happened, in order, with the seconds since the first of it."""
    marks = sorted([*job_marks(history), *fault_marks(history)], key=lambda mark: mark.at_ns)
    return [((mark.at_ns - marks[0].at_ns) / NS, mark) for mark in marks]


def _spans(spans: Sequence[Span], scale: Scale, y: int) -> list[str]:
    """Draw the leases of a lane; of those that begin at one pixel, the longest."""
    longest: dict[int, Span] = {}
    for span in spans:
        place = round(scale.x(span.begin_ns))
        if place not in longest or span.end_ns > longest[place].end_ns:
            longest[place] = span
    return [part for span in longest.values() for part in _span(span, scale, y)]


def _span(span: Span, scale: Scale, y: int) -> list[str]:
    begin = scale.x(span.begin_ns)
    width = max(2.0, scale.x(span.end_ns) - begin)
    drawn = [
        f'<rect class="{span.tone}" x="{begin:.1f}" y="{y}" width="{width:.1f}" '
        f'height="{BAR}" rx="3"><title>{safe(span.detail)}</title></rect>'
    ]
    if LETTER * len(span.label) + 14 < width:
        drawn.append(f'<text x="{begin + width / 2:.1f}" y="{y + 13}">{safe(span.label)}</text>')
    return drawn


def _lane_marks(marks: Sequence[Mark], scale: Scale, y: int) -> list[str]:
    """Draw the marks of a lane, their labels in two rows; one that has no room is left out."""
    drawn: list[str] = []
    rows: tuple[list[tuple[float, float]], ...] = ([], [])
    for x, mark in _clusters(marks, scale):
        drawn.append(
            f'<circle class="{mark.tone}" cx="{x:.1f}" cy="{y + 41}" r="5">'
            f"<title>{safe(mark.label)}: {safe(mark.detail)}</title></circle>"
        )
        half = LETTER * len(mark.label) / 2
        middle = min(max(x, SIDE + half), max(scale.width - SIDE - half, SIDE + half))
        left, right = middle - half - 4, middle + half + 4
        row = next(
            (n for n in (0, 1) if all(right <= a or left >= b for a, b in rows[n])),
            None,
        )
        if row is not None:
            rows[row].append((left, right))
            drawn.append(
                f'<text x="{middle:.1f}" y="{y + (28 if row == 0 else 73)}">'
                f"{safe(mark.label)}</text>"
            )
    return drawn


def _clusters(marks: Sequence[Mark], scale: Scale) -> list[tuple[float, Mark]]:
    """Return the marks with their places, the main ones first; many at one place are one mark."""
    places: dict[int, list[Mark]] = {}
    for mark in sorted(marks, key=lambda mark: (not mark.main, mark.at_ns)):
        places.setdefault(round(scale.x(mark.at_ns) / DOT), []).append(mark)
    return [(scale.x(each[0].at_ns), _one(each)) for each in places.values()]


def _one(marks: list[Mark]) -> Mark:
    first = marks[0]
    if len(marks) == 1:
        return first
    tone = min((mark.tone for mark in marks), key=WORST.index)
    others = ", ".join(f"{mark.label}: {mark.detail}" for mark in marks[1:4])
    more = f", and {len(marks) - 4} more" if len(marks) > 4 else ""
    detail = f"{first.detail}; {others}{more}"
    return Mark(first.lane, first.at_ns, first.label, tone, detail, first.main)
