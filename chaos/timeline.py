"""The time line of a run as inline SVG: a lane for each job and each fault."""

from dataclasses import dataclass
from html import escape

from chaos.history import History, Record, mapping, text

WIDTH, LEFT, RIGHT, LANE, TOP = 1000, 170, 20, 46, 12
NS = 1_000_000_000
MARKS = {
    "LEASE_CLAIMED": ("claim", "good"),
    "LEASE_EXPIRED": ("expired", "bad"),
    "LEASE_RENEWED": ("revived", "warn"),
    "LEASE_REFUSED": ("refused", "warn"),
    "TASK_COMMIT_ACCEPTED": ("accepted", "good"),
    "TASK_COMMIT_REJECTED": ("rejected", "warn"),
    "TASK_ATTEMPT_FAILED": ("failed", "bad"),
}


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened in a lane."""

    lane: str
    at_ns: int
    label: str
    tone: str
    detail: str


@dataclass(frozen=True, slots=True)
class Span:
    """An attempt from its claim to the next one or its end, or a fault until its receipt."""

    lane: str
    begin_ns: int
    end_ns: int
    label: str
    tone: str = "span"


def render(history: History) -> str:
    """Return the SVG, or an empty string where nothing of interest happened."""
    marks, spans = _marks(history), _spans(history)
    if not marks:
        return ""
    lanes = [*dict.fromkeys(mark.lane for mark in sorted(marks, key=lambda mark: mark.at_ns))]
    begin = min(mark.at_ns for mark in marks)
    end = max([mark.at_ns for mark in marks] + [span.end_ns for span in spans]) + 1
    height = TOP + LANE * len(lanes) + 34

    def x(at_ns: int) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (at_ns - begin) / (end - begin)

    parts = [f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="Time line of the run">']
    parts += _axis((end - begin) / NS, height)
    for index, lane in enumerate(lanes):
        y = TOP + LANE * index
        parts.append(f'<text class="lane" x="4" y="{y + 27}">{escape(lane)}</text>')
        parts.append(
            f'<line class="rail" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y + 22}" y2="{y + 22}"/>'
        )
        parts += [
            _span(span, x(span.begin_ns), x(span.end_ns), y) for span in spans if span.lane == lane
        ]
        parts += _lane_marks([(x(m.at_ns), m) for m in marks if m.lane == lane], y)
    return "\n".join([*parts, "</svg>"])


def _axis(total_s: float, height: int) -> list[str]:
    step_s = next((s for s in (1, 2, 5, 10, 20, 30, 60, 120, 300) if total_s / s <= 12), 600)
    ticks = []
    for tick in range(0, int(total_s) + 1, step_s):
        x = LEFT + (WIDTH - LEFT - RIGHT) * tick / total_s
        ticks.append(
            f'<line class="tick" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{height - 26}"/>'
            f'<text class="time" x="{x:.1f}" y="{height - 10}">{tick} s</text>'
        )
    return ticks


def _span(span: Span, begin: float, end: float, y: int) -> str:
    width = max(2.0, end - begin)
    return (
        f'<rect class="{span.tone}" x="{begin:.1f}" y="{y + 16}" width="{width:.1f}" '
        f'height="12" rx="3"><title>{escape(span.label)}</title></rect>'
    )


def _lane_marks(marks: list[tuple[float, Mark]], y: int) -> list[str]:
    """Draw the marks of a lane; labels that would collide go below, or stay in the tool tip."""
    drawn, ends = [], [float("-inf"), float("-inf")]
    for x, mark in sorted(marks, key=lambda pair: pair[0]):
        drawn.append(
            f'<circle class="{mark.tone}" cx="{x:.1f}" cy="{y + 22}" r="5">'
            f"<title>{escape(mark.label)}: {escape(mark.detail)}</title></circle>"
        )
        width = 6.2 * len(mark.label)
        row = next((row for row in (0, 1) if x - width / 2 > ends[row]), None)
        if row is not None:
            left = min(max(x, LEFT + width / 2), WIDTH - RIGHT - width / 2)
            ends[row] = left + width / 2 + 4
            drawn.append(
                f'<text class="mark" x="{left:.1f}" y="{y + (12 if row == 0 else 40)}">'
                f"{escape(mark.label)}</text>"
            )
    return drawn


def _marks(history: History) -> list[Mark]:
    roles = history.role_of()
    marks = [
        Mark(
            f"job {roles.get(str(event.job_id), '?')}",
            event.mono_ns,
            *MARKS[event.type],
            f"{event.data.get('node_id') or ''} {event.lease_id or ''}",
        )
        for event in history.events()
        if event.type in MARKS
    ]
    for record in history.records:
        marks += _fault_marks(record)
    return marks


def _fault_marks(record: Record) -> list[Mark]:
    lane = f"{record.data.get('fault_id')}"
    if record.kind == "fault_firing":
        return [Mark(lane, record.t_ns, "fires", "bad", lane)]
    if record.kind == "fault_receipt":
        landed = str(record.data["landed"])
        tone = "good" if landed == "landed" else "warn"
        return [Mark(lane, record.t_ns, landed, tone, "its receipt is complete")]
    is_of_fault = record.kind == "undo" and record.data.get("fault_id") is not None
    if is_of_fault and record.data.get("state") == "done":
        return [Mark(lane, record.t_ns, "undone", "good", str(record.data["action"]))]
    return []


def _fault_spans(history: History) -> list[Span]:
    fired = {
        str(record.data["fault_id"]): record.t_ns
        for record in history.records
        if record.kind == "fault_firing"
    }
    return [
        Span(fault_id, fired[fault_id], record.t_ns, "from firing to receipt", "hurt")
        for record in history.records
        if record.kind == "fault_receipt" and (fault_id := str(record.data["fault_id"])) in fired
    ]


def _spans(history: History) -> list[Span]:
    roles, last = history.role_of(), max((e.mono_ns for e in history.events()), default=0)
    begun: dict[str, tuple[int, str]] = {}
    spans = []
    for event in history.events():
        lane, task = f"job {roles.get(str(event.job_id), '?')}", str(event.task_id)
        if event.type in {"LEASE_CLAIMED", "TASK_COMMIT_ACCEPTED", "TASK_ATTEMPT_FAILED"}:
            if task in begun:
                since, label = begun.pop(task)
                spans.append(Span(lane, since, event.mono_ns, label))
            if event.type == "LEASE_CLAIMED":
                node = text(mapping(dict(event.data)).get("node_id")) or "?"
                number = event.data.get("attempt_number")
                begun[task] = (event.mono_ns, f"attempt {number} on {node}")
    ended = {str(e.task_id): f"job {roles.get(str(e.job_id), '?')}" for e in history.events()}
    spans += [Span(ended[task], since, last, label) for task, (since, label) in begun.items()]
    return spans + _fault_spans(history)
