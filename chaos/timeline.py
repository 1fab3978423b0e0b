"""The time line of a run as inline SVG: a lane for each job and each fault."""

import json
from dataclasses import dataclass
from html import escape

from chaos.history import Event, History, HistoryError, Record, integer, items, mapping, text
from chaos.page import HOLDERS

SIDE, LANE, TOP, BAR = 10, 70, 4, 18
LETTER = 6.2
NS = 1_000_000_000
MARKS = {
    "LEASE_CLAIMED": ("claimed", "good"),
    "LEASE_EXPIRED": ("lease expired", "bad"),
    "LEASE_RENEWED": ("revived", "warn"),
    "LEASE_REFUSED": ("late call refused", "warn"),
    "TASK_COMMIT_ACCEPTED": ("result accepted", "good"),
    "TASK_COMMIT_REJECTED": ("late result refused", "warn"),
    "TASK_ATTEMPT_FAILED": ("attempt failed", "bad"),
}
BEGINS = {"LEASE_CLAIMED", "LEASE_RENEWED"}
ENDS = {"LEASE_EXPIRED", "TASK_COMMIT_ACCEPTED", "TASK_ATTEMPT_FAILED"}


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened in a lane; where there is little room, `main` ones are labelled."""

    lane: str
    at_ns: int
    label: str
    tone: str
    detail: str
    main: bool = False


@dataclass(frozen=True, slots=True)
class Span:
    """A lease from its claim to its end, or a fault from firing to receipt."""

    lane: str
    begin_ns: int
    end_ns: int
    label: str
    detail: str
    tone: str


@dataclass(frozen=True, slots=True)
class Scale:
    """Where a time stands on a canvas."""

    begin_ns: int
    end_ns: int
    width: int

    def x(self, at_ns: int) -> float:
        """Return the place of a time."""
        share = (at_ns - self.begin_ns) / (self.end_ns - self.begin_ns)
        return SIDE + (self.width - 2 * SIDE) * share


def render(history: History, width: int) -> str:
    """Return the SVG, or an empty string where nothing of interest happened."""
    marks, spans = _marks(history), _spans(history)
    if not marks:
        return ""
    lanes = [*dict.fromkeys(mark.lane for mark in marks)]
    end = max([mark.at_ns for mark in marks] + [span.end_ns for span in spans]) + 1
    scale = Scale(min(mark.at_ns for mark in marks), end, width)
    height = TOP + LANE * len(lanes) + 30
    parts = [f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="Time line of the run">']
    parts += _axis(scale, height)
    for index, lane in enumerate(lanes):
        y = TOP + LANE * index
        parts.append(f'<text class="lane" x="{SIDE}" y="{y + 13}">{escape(lane)}</text>')
        parts.append(
            f'<line class="rail" x1="{SIDE}" x2="{width - SIDE}" y1="{y + 41}" y2="{y + 41}"/>'
        )
        for span in spans:
            parts += _span(span, scale, y + 32) if span.lane == lane else []
        parts += _lane_marks([mark for mark in marks if mark.lane == lane], scale, y)
    return "\n".join([*parts, "</svg>"])


def told(history: History) -> list[tuple[float, Mark]]:
    """Return what happened, in order, with the seconds since the first of it."""
    marks = sorted(_marks(history), key=lambda mark: mark.at_ns)
    return [((mark.at_ns - marks[0].at_ns) / NS, mark) for mark in marks]


def holders(history: History) -> dict[str, str]:
    """Return holder -> the class that colours it."""
    nodes = sorted({_node(e) for e in history.events() if e.type == "LEASE_CLAIMED"})
    return {node: f"h{number % HOLDERS}" for number, node in enumerate(nodes)}


def _axis(scale: Scale, height: int) -> list[str]:
    total_s = (scale.end_ns - scale.begin_ns) / NS
    steps, most = (1, 2, 5, 10, 20, 30, 60, 120, 300), scale.width // 75
    step_s = next((step for step in steps if total_s / step <= most), 600)
    ticks = []
    for tick in range(0, int(total_s) + 1, step_s):
        x = scale.x(scale.begin_ns + tick * NS)
        ticks.append(
            f'<line class="tick" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP + 18}" y2="{height - 22}"/>'
            f'<text class="time" x="{max(x, 14):.1f}" y="{height - 8}">{tick} s</text>'
        )
    return ticks


def _span(span: Span, scale: Scale, y: int) -> list[str]:
    begin = scale.x(span.begin_ns)
    width = max(2.0, scale.x(span.end_ns) - begin)
    drawn = [
        f'<rect class="{span.tone}" x="{begin:.1f}" y="{y}" width="{width:.1f}" '
        f'height="{BAR}" rx="3"><title>{escape(span.detail)}</title></rect>'
    ]
    if LETTER * len(span.label) + 14 < width:
        drawn.append(f'<text x="{begin + width / 2:.1f}" y="{y + 13}">{escape(span.label)}</text>')
    return drawn


def _lane_marks(marks: list[Mark], scale: Scale, y: int) -> list[str]:
    """Draw the marks of a lane, their labels in two rows; one that has no room is left out."""
    drawn: list[str] = []
    rows: tuple[list[tuple[float, float]], ...] = ([], [])
    for mark in sorted(marks, key=lambda mark: (not mark.main, mark.at_ns)):
        x = scale.x(mark.at_ns)
        drawn.append(
            f'<circle class="{mark.tone}" cx="{x:.1f}" cy="{y + 41}" r="5">'
            f"<title>{escape(mark.label)}: {escape(mark.detail)}</title></circle>"
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
                f'<text x="{middle:.1f}" y="{y + (28 if row == 0 else 63)}">'
                f"{escape(mark.label)}</text>"
            )
    return drawn


def _node(event: Event) -> str:
    return text(mapping(dict(event.data)).get("node_id")) or "?"


def _marks(history: History) -> list[Mark]:
    """Return what happened, lane by lane: the jobs first, then the faults."""
    resumes = _resumes(history)
    marks = []
    for event in history.events():
        if event.type in MARKS:
            label, tone = MARKS[event.type]
            if event.type == "LEASE_CLAIMED":
                label, tone = resumes.get(str(event.lease_id), (label, tone))
            lane = f"job {history.lanes.get(str(event.task_id), '?')}"
            detail = f"{event.data.get('node_id') or ''} {event.lease_id or ''}".strip()
            main = event.type in {"LEASE_CLAIMED", "TASK_COMMIT_ACCEPTED"}
            marks.append(Mark(lane, event.mono_ns, label, tone, detail, main))
    marks.sort(key=lambda mark: _order(mark.lane))
    for record in history.records:
        marks += _fault_marks(record)
    return marks


def _order(lane: str) -> tuple[str, int]:
    role, _, index = lane.partition("/")
    return role, int(index or 0)


def _resumes(history: History) -> dict[str, tuple[str, str]]:
    """Return the label and tone of the claims of attempts that took over a checkpoint."""
    found = {
        str(link["attempt_id"]): (f"resumed from step {step}", "good")
        for tree in history.of("checkpoints")
        for link in items(tree.get("lineage"))
        if (step := integer(link.get("step"))) is not None
    }
    for role in history.role_of().values():
        try:
            final = history.final(role)
        except HistoryError:
            continue
        refused = _refused(text(final.get("logs")) or "")
        tasks = items(final.get("tasks"))
        for task in tasks if len(tasks) == 1 else []:
            lease_id = str(task.get("lease_id"))
            if refused:
                steps = ", ".join(str(step) for step in refused)
                then, _ = found.get(lease_id, ("started anew", ""))
                found[lease_id] = (f"step {steps} refused, {then}", "warn")
    return found


def _refused(log: str) -> list[int]:
    """Return the steps of the checkpoints that a job says it passed over."""
    said = []
    for line in log.splitlines():
        try:
            told = mapping(json.loads(line))
        except ValueError:
            continue
        step = integer(told.get("step"))
        said += [step] if told.get("event") == "checkpoint_rejected" and step is not None else []
    return said


def _fault_marks(record: Record) -> list[Mark]:
    lane = f"fault {record.data.get('fault_id')}"
    if record.kind == "fault_firing":
        return [Mark(lane, record.t_ns, "fires", "bad", lane, main=True)]
    if record.kind == "fault_receipt":
        landed = str(record.data["landed"])
        tone = "good" if landed == "landed" else "warn"
        return [Mark(lane, record.t_ns, landed, tone, "its receipt is complete", main=True)]
    is_of_fault = record.kind == "undo" and record.data.get("fault_id") is not None
    words = {"early": "undone early", "done": "undone"}
    if is_of_fault and (word := words.get(str(record.data.get("state")))) is not None:
        return [Mark(lane, record.t_ns, word, "good", str(record.data["action"]))]
    return []


def _fault_spans(history: History) -> list[Span]:
    fired = {
        str(record.data["fault_id"]): record.t_ns
        for record in history.records
        if record.kind == "fault_firing"
    }
    return [
        Span(f"fault {name}", fired[name], record.t_ns, "", "from firing to receipt", "hurt")
        for record in history.records
        if record.kind == "fault_receipt" and (name := str(record.data["fault_id"])) in fired
    ]


def _spans(history: History) -> list[Span]:
    """Return the leases: each from its claim to its end, the next claim, or the last event."""
    events, tones = history.events(), holders(history)
    last = max((event.mono_ns for event in events), default=0)
    claims = {str(event.lease_id): event for event in events if event.type == "LEASE_CLAIMED"}
    begun: dict[str, Event] = {}
    spans = []

    def close(began: Event, end_ns: int) -> None:
        claim = claims[str(began.lease_id)]
        node, number = _node(claim), claim.data.get("attempt_number")
        detail = f"attempt {number} on {node}"
        lane = f"job {history.lanes.get(str(claim.task_id), '?')}"
        spans.append(Span(lane, began.mono_ns, end_ns, node, detail, tones[node]))

    for event in events:
        task = str(event.task_id)
        live = begun.get(task)
        ends = live is not None and event.lease_id == live.lease_id and event.type in ENDS
        if live is not None and (ends or event.type == "LEASE_CLAIMED"):
            close(begun.pop(task), event.mono_ns)
        if event.type in BEGINS and str(event.lease_id) in claims and task not in begun:
            begun[task] = event
    for live in begun.values():
        close(live, last)
    return spans + _fault_spans(history)
