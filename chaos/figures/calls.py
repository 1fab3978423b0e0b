"""The calls on each task's lease, from three voices: the ledger, the workers, the request log.

The ledger's events stand at the moment of their transaction. What a worker says that it was
answered took effect between its start and its word; what the coordinator logs of a request, while
it worked on it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from chaos.history import Event, History, integer, items, text
from chaos.linearizable import Answer, Call, Operation
from chaos.model import JsonValue

CLOSES = {"JOB_SUCCEEDED", "JOB_FAILED", "JOB_CANCELLED", "TASK_EXHAUSTED"}
CALLS = {
    "LEASE_CLAIMED": Call.CLAIM,
    "LEASE_RENEWED": Call.RENEW,
    "LEASE_EXPIRED": Call.SWEEP,
    "TASK_COMMIT_ACCEPTED": Call.COMPLETE,
    "TASK_ATTEMPT_FAILED": Call.FAIL,
}
WORDS = {
    "lease_claimed": (Call.CLAIM, Answer.DONE),
    "attempt_accepted": (Call.COMPLETE, Answer.DONE),
    "attempt_refused": (Call.COMPLETE, Answer.REFUSED),
    "attempt_failed": (Call.FAIL, Answer.DONE),
}
ROUTES = {"heartbeat": Call.RENEW, "fail": Call.FAIL}
ANSWERS = {200: Answer.DONE, 410: Answer.REFUSED}
NS_PER_MS = 1_000_000
Line = dict[str, JsonValue]


def calls(history: History) -> dict[str, list[Operation]]:
    """Return task id -> the calls on its lease; only tasks that were claimed are there."""
    events = history.events()
    claims = {str(e.lease_id): e for e in events if e.type == "LEASE_CLAIMED"}
    task_of = {lease: str(claim.task_id) for lease, claim in claims.items()}
    found: dict[str, list[Operation]] = {task: [] for task in task_of.values()}
    requeued = {
        event.lease_id
        for event in events
        if event.type == "TASK_REQUEUED" and event.data.get("reason") == "attempt_failed"
    }
    for event, at_ns in zip(events, _instants(events), strict=True):
        for task in _tasks(event, claims):
            found[task] += _of_event(event, at_ns, requeued)
    for log, line in _said(history):
        lease = text(line.get("lease_id"))
        if lease in task_of:
            voice = _Voice(log, claims[lease].mono_ns, lease not in requeued)
            found[task_of[lease]] += _of_line(voice, line)
    return found


def boots(history: History) -> int:
    """Return in how many boots events were recorded; times of two cannot be compared."""
    return len({event.boot_id for event in history.events()})


def _tasks(event: Event, claims: dict[str, Event]) -> set[str]:
    """Return the claimed tasks that an event speaks of: of a whole job, all of its."""
    if event.task_id is None and event.type in CLOSES:
        return {str(claim.task_id) for claim in claims.values() if claim.job_id == event.job_id}
    return {str(c.task_id) for c in claims.values() if c.task_id == event.task_id}


def _instants(events: Sequence[Event]) -> Iterator[int]:
    """Yield an instant for each event; those of one transaction follow one another by their ids."""
    last = 0
    for event in events:
        last = max(event.mono_ns, last + 1)
        yield last


def _of_event(event: Event, at: int, requeued: set[str | None]) -> Iterator[Operation]:
    lease, by = event.lease_id or "", f"event {event.id}"
    if event.type in CALLS:
        call = CALLS[event.type]
        number = integer(event.data.get("attempt_number")) if call is Call.CLAIM else None
        final = call is Call.FAIL and lease not in requeued
        yield Operation(call, lease, at, at, attempt=number, final=final, said_by=by)
    elif event.type in CLOSES:
        yield Operation(Call.CLOSE, "", at, at, said_by=by)
    elif event.type in {"TASK_COMMIT_REJECTED", "LEASE_REFUSED"}:
        yield Operation(Call.RENEW, lease, at, at, Answer.REFUSED, said_by=by)


def _said(history: History) -> Iterator[tuple[str, Line]]:
    for logs in history.of("said"):
        for log, lines in logs.items():
            for line in items(lines):
                yield log, line


@dataclass(frozen=True, slots=True)
class _Voice:
    """Whose log speaks of a lease, when that was claimed, and whether its failure would be final.

    What a worker is told of a lease comes after its claim.
    """

    log: str
    claimed_ns: int
    final: bool

    def operation(self, call: Call, line: Line, answer: Answer, took_ns: int | None) -> Operation:
        """Return the call that a line ends; where it does not say how long it took, since claim."""
        at = integer(line.get("mono_ns")) or 0
        return Operation(
            call,
            str(line["lease_id"]),
            min(self.claimed_ns, at) if took_ns is None else at - took_ns,
            at,
            answer,
            integer(line.get("attempt")) if call is Call.CLAIM else None,
            call is Call.FAIL and self.final,
            self.log,
        )


def _of_line(voice: _Voice, line: Line) -> Iterator[Operation]:
    word = str(line.get("event"))
    if word in WORDS:
        call, answer = WORDS[word]
        yield voice.operation(call, line, answer, None)
    elif word == "attempt_discarded" and "heartbeat refused" in str(line.get("reason")):
        yield voice.operation(Call.RENEW, line, Answer.REFUSED, None)
    elif word == "request":
        yield from _of_request(voice, line)


def _of_request(voice: _Voice, line: Line) -> Iterator[Operation]:
    call = ROUTES.get(str(line.get("route")).rpartition("/")[2])
    answer = ANSWERS.get(integer(line.get("status")) or 0)
    took_ms = line.get("duration_ms")
    if call is not None and answer is not None and isinstance(took_ms, int | float):
        yield voice.operation(call, line, answer, int((took_ms + 1) * NS_PER_MS))
