"""In which phase of its life a task was when a fault hit it, from the saved history alone.

An upload of results and the call that completes a task cannot be told apart from outside: both are
`FINISHING`, unless the receipt itself names the call.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from chaos.history import Event, History, HistoryError, Record, integer, items, mapping, text
from chaos.model import JsonMap, JsonValue, Landed

TARGET_OF = "target of "
ENDS = {"LEASE_EXPIRED", "TASK_REQUEUED", "TASK_ATTEMPT_FAILED"}
DONE = {"TASK_COMMIT_ACCEPTED", "JOB_SUCCEEDED", "JOB_FAILED", "JOB_CANCELLED"}


class Phase(StrEnum):
    """Where in its life a task is; the last two are no phase of a task."""

    IDLE = "idle: not submitted, or waiting for its first claim"
    SUBMITTING = "its submission under way"
    CLAIMING = "a claim under way"
    STARTING = "claimed, before its first step"
    STEPPING = "making steps"
    WRITING_PARTS = "writing the parts of a checkpoint"
    COMMITTING_MANIFEST = "committing the manifest of a checkpoint"
    FINISHING = "all steps made: uploading and completing"
    COMPLETING = "the call that completes it under way"
    LOST = "its holder lost, not claimed again"
    RESUMING = "claimed again, before its first step"
    COORDINATOR_DOWN = "the coordinator down or starting"
    DONE = "ended"
    NEVER = "the fault never fired"


CALLS = {"submit": Phase.SUBMITTING, "claim": Phase.CLAIMING, "complete": Phase.COMPLETING}


@dataclass(frozen=True, slots=True)
class Change:
    """From `at_ns` on a task is in a phase."""

    at_ns: int
    phase: Phase


def phases_of(history: History, fault_id: str) -> tuple[Phase, ...]:
    """Return the phase in which a fault hit, and those it was held through, in order.

    The moment is the one its receipt states; without any the one it fired at.
    """
    fired = _fired_ns(history, fault_id)
    if fired is None:
        return (Phase.NEVER,)
    receipt = _receipt(history, fault_id)
    evidence = mapping(receipt.get("evidence"))
    if (named := _named(history, fault_id, evidence)) is not None:
        return (named,)
    took_effect = integer(receipt.get("took_effect_ns")) or integer(evidence.get("on_ns"))
    begin = max(fired, took_effect or fired)
    end = max(begin, integer(evidence.get("off_ns")) or begin)
    changes = _life(history, _role(history, fault_id))
    down = _coordinator_down(history, fault_id)
    first = Phase.COORDINATOR_DOWN if _within(down, begin) else _at(changes, begin)
    later = [change.phase for change in changes if begin <= change.at_ns < end]
    return tuple(dict.fromkeys((first, *later)))


def phase_of(history: History, fault_id: str) -> Phase:
    """Return the phase in which a fault hit."""
    return phases_of(history, fault_id)[0]


def _fired_ns(history: History, fault_id: str) -> int | None:
    fired = [
        record.t_ns
        for record in history.records
        if record.kind == "fault_firing" and record.data.get("fault_id") == fault_id
    ]
    return fired[0] if fired else None


def _receipt(history: History, fault_id: str) -> JsonMap:
    found = [r for r in history.of("fault_receipt") if r.get("fault_id") == fault_id]
    return found[-1] if found else {}


def _planned(history: History, fault_id: str) -> JsonMap:
    schedule = items(history.one("plan").get("schedule"))
    return next((each for each in schedule if each.get("fault_id") == fault_id), {})


def _named(history: History, fault_id: str, evidence: JsonMap) -> Phase | None:
    """Return the phase that the receipt names: a call that was cut, or an open save."""
    params = mapping(_planned(history, fault_id).get("params"))
    for value in (evidence.get("call"), params.get("call")):
        if (call := text(value)) in CALLS:
            return CALLS[call]
    if integer(evidence.get("window_seen_ns")) is None:
        return None
    has_manifest = bool(mapping(evidence.get("left")).get("manifest"))
    return Phase.COMMITTING_MANIFEST if has_manifest else Phase.WRITING_PARTS


def _role(history: History, fault_id: str) -> str:
    """Return the job or task that a fault is about: of its target, or of its trigger."""
    planned = _planned(history, fault_id)
    target = str(planned.get("target"))
    if target.startswith(TARGET_OF):
        earlier = target.removeprefix(TARGET_OF)
        return _role(history, earlier) if earlier != fault_id else ""
    _, of, role = target.partition(" of ")
    return role if of else str(mapping(planned.get("trigger")).get("role"))


def _life(history: History, role: str) -> tuple[Change, ...]:
    """Return the changes of phase of a task, in order of time."""
    changes = sorted([*_told(history, role), *_stepped(history, role)], key=lambda c: c.at_ns)
    return tuple(_forward(changes))


def _forward(changes: list[Change]) -> Iterator[Change]:
    """Leave out steps that are heard of after an attempt has ended: they are old news."""
    working = {Phase.STARTING, Phase.RESUMING, Phase.STEPPING, Phase.FINISHING}
    now = Phase.IDLE
    for change in changes:
        is_step = change.phase in {Phase.STEPPING, Phase.FINISHING}
        if change.phase != now and (not is_step or now in working):
            now = change.phase
            yield change


def _told(history: History, role: str) -> Iterator[Change]:
    """Yield what the coordinator's events say."""
    claims = 0
    for event in _events(history, role):
        if event.type == "LEASE_CLAIMED":
            claims += 1
            yield Change(event.mono_ns, Phase.RESUMING if claims > 1 else Phase.STARTING)
        elif event.type in ENDS:
            yield Change(event.mono_ns, Phase.LOST)
        elif event.type == "LEASE_RENEWED":
            yield Change(event.mono_ns, Phase.STEPPING)
        elif event.type in DONE:
            yield Change(event.mono_ns, Phase.DONE)


def _events(history: History, role: str) -> list[Event]:
    """Return the events of a task, or of all tasks of a job that has no lane of its own."""
    boots = {record.boot_id for record in history.records}
    jobs, lanes = history.role_of(), history.lanes
    return [
        event
        for event in history.events()
        if event.boot_id in boots
        and role in {lanes.get(str(event.task_id)), jobs.get(str(event.job_id))}
        and (event.task_id is not None or event.type in DONE)
    ]


def _stepped(history: History, role: str) -> Iterator[Change]:
    """Yield when steps were heard of: the first of an attempt, and the last of all."""
    last = _last_step(history, role)
    for record in history.records:
        if record.kind != "task" or record.data.get("role") != role:
            continue
        step = integer(mapping(record.data.get("task")).get("step"))
        if step is not None:
            yield Change(record.t_ns, _of_step(step, last))


def _of_step(step: int, last: int | None) -> Phase:
    return Phase.FINISHING if last is not None and step >= last else Phase.STEPPING


def _last_step(history: History, role: str) -> int | None:
    try:
        ends = history.task_ends(role.partition("/")[0])
    except HistoryError:
        return None
    steps: list[JsonValue] = [mapping(end.get("metrics")).get("steps") for end in ends]
    known = [step for each in steps if (step := integer(each)) is not None]
    return max(known, default=None)


def _at(changes: tuple[Change, ...], at_ns: int) -> Phase:
    """Return the phase just before a moment: what a fault itself brought about is not it."""
    before = [change.phase for change in changes if change.at_ns < at_ns]
    return before[-1] if before else Phase.IDLE


def _coordinator_down(history: History, fault_id: str) -> list[tuple[int, int]]:
    """Return when other faults had the coordinator down, until it said that it is ready."""
    ready = [
        at_ns
        for said in history.of("said")
        for line in items(said.get("coordinator"))
        if line.get("event") == "coordinator_ready"
        and (at_ns := integer(line.get("mono_ns"))) is not None
    ]
    downs = [record for record in history.records if _takes_down(record, fault_id)]
    begins = [integer(record.data.get("took_effect_ns")) or record.t_ns for record in downs]
    return [(at, min((up for up in ready if up > at), default=at)) for at in begins]


def _takes_down(record: Record, fault_id: str) -> bool:
    data = record.data
    is_landed = record.kind == "fault_receipt" and data.get("landed") == Landed.LANDED
    ended = "exit_code" in mapping(data.get("evidence"))
    other = data.get("fault_id") != fault_id
    return is_landed and other and ended and data.get("target") == "coordinator"


def _within(spans: list[tuple[int, int]], at_ns: int) -> bool:
    return any(begin <= at_ns < end for begin, end in spans)
