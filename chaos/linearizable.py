"""Whether what was answered about one task's lease could have come from one register.

Sources: J. Wing and C. Gong, "Testing and verifying concurrent objects", 1993 (the search);
G. Lowe, "Testing for linearizability", 2017 (each configuration is visited once). Tasks are judged
one by one: a history is linearizable where each object's part is (Herlihy and Wing, 1990).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

BUDGET = 200_000
"""Configurations that are visited before the search gives up: some seconds."""


class Call(StrEnum):
    """What can be asked of a lease register; `CLOSE` is the end of its job."""

    CLAIM = "claim"
    RENEW = "renew"
    COMPLETE = "complete"
    FAIL = "fail"
    SWEEP = "sweep"
    CLOSE = "close"


class Answer(StrEnum):
    """What was answered; a call without an answer may take effect at any later time, or never."""

    DONE = "done"
    REFUSED = "refused"
    NONE = "none"


class Phase(StrEnum):
    """What a task's register is: to be claimed, held, held by one who is late, at its end."""

    FREE = "free"
    HELD = "held"
    LAPSED = "lapsed"
    ENDED = "ended"


class Outcome(StrEnum):
    """What the search found; `UNDECIDED` where its budget did not suffice."""

    LINEARIZABLE = "linearizable"
    NOT_LINEARIZABLE = "not linearizable"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Operation:
    """One call with the time in which it took effect, in CLOCK_MONOTONIC nanoseconds.

    `lease` is the caller's, of a claim the one that it brought, of a sweep the one that lapsed.
    `attempt` is the number that a claim brought, None where it was not told. A `final` failure
    leaves nothing to be claimed. `said_by` is for people.
    """

    call: Call
    lease: str
    invoked_ns: int
    returned_ns: int
    answer: Answer = Answer.DONE
    attempt: int | None = None
    final: bool = False
    said_by: str = ""

    @property
    def told(self) -> str:
        """The operation in words."""
        by = f" ({self.said_by})" if self.said_by else ""
        return f"{self.call} of {self.lease or 'the job'}: {self.answer}{by}"


@dataclass(frozen=True, slots=True)
class Register:
    """The lease register of one task; whoever holds it stays its holder until another claims."""

    phase: Phase = Phase.FREE
    holder: str | None = None
    attempt: int = 0
    failed: frozenset[str] = frozenset()

    def after(self, operation: Operation) -> "Register | None":
        """Return the register after an operation, None where it could not be answered so."""
        if operation.answer is Answer.REFUSED:
            return self if self._refuses(operation) else None
        return self._done(operation)

    def _refuses(self, operation: Operation) -> bool:
        if operation.call is Call.CLAIM:
            return self.phase in {Phase.HELD, Phase.ENDED}
        return self.holder != operation.lease

    def _done(self, operation: Operation) -> "Register | None":
        if operation.call is Call.CLAIM:
            return self._claimed(operation)
        if operation.call is Call.CLOSE:
            done = self.phase is Phase.ENDED
            return self if done else replace(self, phase=Phase.ENDED, holder=None)
        if operation.call is Call.FAIL and operation.lease in self.failed:
            return self
        if self.holder != operation.lease:
            return None
        if self.phase is Phase.ENDED:
            return self if operation.call in {Call.RENEW, Call.COMPLETE} else None
        return self._changed(operation)

    def _claimed(self, operation: Operation) -> "Register | None":
        number = self.attempt if operation.attempt is None else operation.attempt
        if self.phase in {Phase.FREE, Phase.LAPSED} and self.holder != operation.lease:
            number += operation.attempt is None
            taken = Register(Phase.HELD, operation.lease, number, self.failed)
            return taken if number == self.attempt + 1 else None
        again = self.holder == operation.lease and self.phase is not Phase.ENDED
        return replace(self, phase=Phase.HELD) if again and number == self.attempt else None

    def _changed(self, operation: Operation) -> "Register | None":
        if operation.call is Call.SWEEP:
            return replace(self, phase=Phase.LAPSED) if self.phase is Phase.HELD else None
        if operation.call is Call.RENEW:
            return replace(self, phase=Phase.HELD)
        if operation.call is Call.COMPLETE:
            return replace(self, phase=Phase.ENDED)
        left = Phase.ENDED if operation.final else Phase.FREE
        return Register(left, None, self.attempt, self.failed | {operation.lease})


@dataclass(frozen=True, slots=True)
class Result:
    """What was found; `stuck` are the operations of which none could come next."""

    outcome: Outcome
    stuck: tuple[Operation, ...] = ()
    visited: int = 0


Configuration = tuple[int, Register]


def check(operations: Sequence[Operation], budget: int = BUDGET) -> Result:
    """Look for an order of the operations that respects time and that one register could answer.

    Each configuration, what is done and the register then, is visited once; at most `budget`.
    """
    search = _Search(operations)
    first: Configuration = (0, Register())
    visited, waiting = {first}, [search.steps(first)]
    while waiting:
        if search.complete:
            return Result(Outcome.LINEARIZABLE, visited=len(visited))
        if len(visited) > budget:
            return Result(Outcome.UNDECIDED, visited=len(visited))
        step = next((each for each in waiting[-1] if each not in visited), None)
        if step is None:
            waiting.pop()
        else:
            visited.add(step)
            waiting.append(search.steps(step))
    return Result(Outcome.NOT_LINEARIZABLE, search.stuck, len(visited))


class _Search:
    """What can come next; remembers the configuration that came furthest."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        self._operations = sorted(operations, key=lambda each: each.invoked_ns)
        self._answered = [each.answer is not Answer.NONE for each in self._operations]
        self._needed = sum(answered << n for n, answered in enumerate(self._answered))
        self.complete = not self._needed
        self.stuck: tuple[Operation, ...] = ()
        self._furthest = -1

    def steps(self, configuration: Configuration) -> Iterator[Configuration]:
        """Return the configurations that one more operation leads to."""
        done, register = configuration
        self.complete = self.complete or done & self._needed == self._needed
        eligible = self._eligible(done)
        if (came := (done & self._needed).bit_count()) > self._furthest:
            self._furthest = came
            self.stuck = tuple(self._operations[number] for number in eligible)
        for number in eligible:
            after = register.after(self._operations[number])
            if after is not None:
                yield done | 1 << number, after

    def _eligible(self, done: int) -> list[int]:
        """Return what began before anything that is not done had its answer."""
        first = (~done & (done + 1)).bit_length() - 1
        earliest_ns: int | None = None
        eligible = []
        for number in range(first, len(self._operations)):
            operation = self._operations[number]
            if earliest_ns is not None and operation.invoked_ns > earliest_ns:
                break
            if done >> number & 1:
                continue
            eligible.append(number)
            if self._answered[number]:
                ends_ns = operation.returned_ns
                earliest_ns = ends_ns if earliest_ns is None else min(earliest_ns, ends_ns)
        return eligible
