"""The steps and the loss of each attempt over time, and when its heartbeats were heard.

A step that is heard of came with a heartbeat. Lines of the loss have a step and no time: they stand
where that step was heard of.
"""

import json
import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from chaos.drawing.canvas import SIDE, Scale, line, thinned
from chaos.drawing.marks import holders, lane_of
from chaos.history import History, HistoryError, integer, items, mapping, text
from chaos.model import JsonValue
from chaos.page import safe

HEIGHT = 120
MOST_LINES = 20_000


@dataclass(frozen=True, slots=True)
class Curve:
    """What one attempt reached, as (time, value); `tone` is the class of its holder."""

    lane: str
    lease_id: str
    tone: str
    points: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Heard:
    """When the steps of a lane were heard of, and when its heartbeats had no answer."""

    heard: Mapping[str, tuple[int, ...]]
    unanswered: Mapping[str, tuple[int, ...]]


def steps(history: History) -> tuple[Curve, ...]:
    """Return the steps of each attempt as they were heard of."""
    tones = holders(history)
    found: dict[str, list[tuple[int, float]]] = {}
    about: dict[str, tuple[str, str]] = {}
    for record in history.records:
        task = mapping(record.data.get("task")) if record.kind == "task" else {}
        step, lease_id = integer(task.get("step")), text(task.get("lease_id"))
        if step is not None and lease_id is not None:
            found.setdefault(lease_id, []).append((record.t_ns, step))
            lane = f"job {record.data.get('role')}"
            about[lease_id] = (lane, tones.get(str(task.get("node_id")), "h0"))
    return tuple(
        Curve(about[lease_id][0], lease_id, about[lease_id][1], tuple(points))
        for lease_id, points in found.items()
    )


def losses(history: History, made: Sequence[Curve]) -> tuple[Curve, ...]:
    """Return the loss over time of each attempt of which the log of its job is there."""
    by_lease = {curve.lease_id: curve for curve in made}
    return tuple(
        Curve(curve.lane, lease_id, curve.tone, points)
        for lease_id, said in _logs(history)
        if (curve := by_lease.get(lease_id)) is not None
        and (points := tuple(_placed(curve, _said(said))))
    )


def _logs(history: History) -> Iterator[tuple[str, str]]:
    """Yield lease id and log of the attempts that ended jobs of one task."""
    for role in history.role_of().values():
        try:
            final = history.final(role)
        except HistoryError:
            continue
        tasks, said = items(final.get("tasks")), text(final.get("logs"))
        if len(tasks) == 1 and said:
            yield str(tasks[0].get("lease_id")), said


def _said(log: str) -> Iterator[tuple[int, float]]:
    """Yield step and loss of the lines that tell both."""
    for each in log.splitlines()[:MOST_LINES]:
        if '"loss"' not in each:
            continue
        try:
            told = mapping(json.loads(each))
        except ValueError:
            continue
        step = integer(told.get("step"))
        step = integer(told.get("seq")) if step is None else step
        loss = _number(told.get("loss"))
        if step is not None and loss is not None:
            yield step, loss


def _number(value: JsonValue) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and math.isfinite(value) else None  # type: ignore[arg-type]


def _placed(curve: Curve, said: Iterator[tuple[int, float]]) -> Iterator[tuple[int, float]]:
    """Yield time and loss; the time of a step lies between those that were heard of around it."""
    reached = [value for _, value in curve.points]
    for step, loss in said:
        after = bisect_left(reached, step)
        if after == 0 and step < reached[0]:
            continue
        if after == len(reached):
            yield curve.points[-1][0], loss
            continue
        (later_ns, later) = curve.points[after]
        (early_ns, early) = curve.points[max(0, after - 1)]
        share = (step - early) / (later - early) if later > early else 1.0
        yield early_ns + int((later_ns - early_ns) * share), loss


def heartbeats(
    history: History, made: Sequence[Curve], unanswered: Mapping[str, Sequence[int]]
) -> Heard:
    """Return when each lane was heard; `unanswered` is lease id -> times."""
    heard: dict[str, list[int]] = {}
    for curve in made:
        heard.setdefault(curve.lane, []).extend(at_ns for at_ns, _ in curve.points)
    missed: dict[str, list[int]] = {}
    for event in history.events():
        if event.type == "LEASE_CLAIMED":
            lane = lane_of(history, event.task_id)
            missed.setdefault(lane, []).extend(unanswered.get(str(event.lease_id), ()))
        elif event.type == "LEASE_REFUSED" and event.data.get("call") == "heartbeat":
            missed.setdefault(lane_of(history, event.task_id), []).append(event.mono_ns)
    return Heard(
        {lane: tuple(times) for lane, times in heard.items()},
        {lane: tuple(times) for lane, times in missed.items() if times},
    )


def chart(title: str, curves: Sequence[Curve], scale: Scale, top: int) -> list[str]:
    """Draw curves over one another, with the lowest and the highest value at the side."""
    values = [value for curve in curves for _, value in curve.points]
    if not values:
        return []
    low, high = min(values), max(values)
    base, room = top + HEIGHT - 8, HEIGHT - 34

    def y(value: float) -> float:
        return base - room * ((value - low) / (high - low) if high > low else 0.5)

    parts = [
        f'<text class="lane" x="{SIDE}" y="{top + 13}">{safe(title)}</text>',
        f'<text class="time side" x="{scale.width - SIDE}" y="{top + 13}">'
        f"{low:g} to {high:g}</text>",
        f'<line class="rail" x1="{SIDE}" x2="{scale.width - SIDE}" y1="{base}" y2="{base}"/>',
    ]
    for curve in curves:
        points = thinned([(scale.x(at_ns), y(value)) for at_ns, value in curve.points])
        told = safe(f"{curve.lane}, {curve.lease_id}")
        path = line(points) if len(points) > 1 else f"{line(points)}h2"
        parts.append(f'<path class="curve {curve.tone}" d="{path}"><title>{told}</title></path>')
    return parts
