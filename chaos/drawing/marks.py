"""What happened in the lane of each job: leases as spans, and what is marked on them."""

import json
from dataclasses import dataclass

from chaos.history import Event, History, HistoryError, Record, integer, items, mapping, text
from chaos.style import HOLDERS

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
    """A lease from its claim to its end."""

    lane: str
    begin_ns: int
    end_ns: int
    label: str
    detail: str
    tone: str


def lane_of(history: History, task_id: str | None) -> str:
    """Return the name of a task's lane."""
    return f"job {history.lanes.get(str(task_id), '?')}"


def holders(history: History) -> dict[str, str]:
    """Return holder -> the class that colours it."""
    nodes = sorted({_node(e) for e in history.events() if e.type == "LEASE_CLAIMED"})
    return {node: f"h{number % HOLDERS}" for number, node in enumerate(nodes)}


def _node(event: Event) -> str:
    return text(mapping(dict(event.data)).get("node_id")) or "?"


def job_marks(history: History) -> list[Mark]:
    """Return what happened to the jobs, lane by lane."""
    resumes = _resumes(history)
    marks = []
    for event in history.events():
        if event.type in MARKS:
            label, tone = MARKS[event.type]
            if event.type == "LEASE_CLAIMED":
                label, tone = resumes.get(str(event.lease_id), (label, tone))
            detail = f"{event.data.get('node_id') or ''} {event.lease_id or ''}".strip()
            main = event.type in {"LEASE_CLAIMED", "TASK_COMMIT_ACCEPTED"}
            lane = lane_of(history, event.task_id)
            marks.append(Mark(lane, event.mono_ns, label, tone, detail, main))
    return sorted(marks, key=lambda mark: _order(mark.lane))


def _order(lane: str) -> tuple[str, int]:
    role, _, index = lane.partition("/")
    return role, int(index) if index.isdecimal() else 0


def fault_marks(history: History) -> list[Mark]:
    """Return when faults fired, had their receipts and were undone."""
    return [mark for record in history.records for mark in _fault_marks(record)]


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


def leases(history: History) -> list[Span]:
    """Return the leases: each from its claim to its end, the next claim, or the last event."""
    events, tones = history.events(), holders(history)
    last = max((event.mono_ns for event in events), default=0)
    claims = {str(event.lease_id): event for event in events if event.type == "LEASE_CLAIMED"}
    begun: dict[str, Event] = {}
    spans = []

    def close(began: Event, end_ns: int) -> None:
        claim = claims[str(began.lease_id)]
        node, number = _node(claim), claim.data.get("attempt_number")
        detail, lane = f"attempt {number} on {node}", lane_of(history, claim.task_id)
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
    return spans
