"""The search for an order of calls that one lease register could have answered."""

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from chaos.linearizable import Answer, Call, Operation, Outcome, Register, check

DONE, REFUSED, NONE = Answer.DONE, Answer.REFUSED, Answer.NONE


def op(call: Call, lease: str, began: int, ended: int, answer: Answer = DONE) -> Operation:
    return Operation(call, lease, began, ended, answer)


def claim(lease: str, began: int, ended: int, attempt: int | None = None) -> Operation:
    return Operation(Call.CLAIM, lease, began, ended, attempt=attempt)


def brute_force(operations: Sequence[Operation]) -> bool:
    """Try every order of every choice of the calls that were not answered."""
    answered = [each for each in operations if each.answer is not NONE]
    open_ones = [each for each in operations if each.answer is NONE]
    return any(
        _legal(order)
        for size in range(len(open_ones) + 1)
        for some in itertools.combinations(open_ones, size)
        for order in itertools.permutations([*answered, *some])
    )


def _legal(order: Sequence[Operation]) -> bool:
    register: Register | None = Register()
    for number, operation in enumerate(order):
        later = order[number + 1 :]
        if any(
            each.answer is not NONE and each.returned_ns < operation.invoked_ns for each in later
        ):
            return False
        register = register.after(operation) if register is not None else None
    return register is not None


@st.composite
def operations(draw: st.DrawFn) -> Operation:
    call = draw(st.sampled_from([*Call]))
    answers = [DONE, NONE] if call in {Call.SWEEP, Call.CLOSE} else [DONE, DONE, REFUSED, NONE]
    began = draw(st.integers(0, 8))
    return Operation(
        call,
        draw(st.sampled_from("ab")),
        began,
        began + draw(st.integers(0, 6)),
        draw(st.sampled_from(answers)),
        draw(st.sampled_from([None, 1, 2])) if call is Call.CLAIM else None,
        call is Call.FAIL and draw(st.booleans()),
    )


@st.composite
def plausible(draw: st.DrawFn) -> list[Operation]:
    """What one register answered, with times blurred, and maybe one answer that it did not give."""
    register, told = Register(), []
    for at in range(draw(st.integers(0, 6))):
        wished = draw(operations())
        number = register.attempt + 1 if wished.call is Call.CLAIM else None
        wished = Operation(
            wished.call, wished.lease, 0, 0, DONE, number, wished.final, wished.said_by
        )
        after = register.after(wished)
        answer = DONE if after is not None else REFUSED
        if answer is REFUSED and wished.call in {Call.SWEEP, Call.CLOSE}:
            continue
        if answer is REFUSED and register.after(_with(wished, REFUSED)) is None:
            continue
        began, ended = at * 3 - draw(st.integers(0, 4)), at * 3 + draw(st.integers(0, 4))
        told.append(
            Operation(wished.call, wished.lease, began, ended, answer, number, wished.final)
        )
        register = after or register
    return told


def _with(operation: Operation, answer: Answer) -> Operation:
    return Operation(operation.call, operation.lease, 0, 0, answer, operation.attempt)


@given(st.lists(operations(), max_size=5) | plausible())
@settings(max_examples=80, deadline=None)
@example([])
def test_the_search_agrees_with_trying_every_order(told: list[Operation]) -> None:
    expected = Outcome.LINEARIZABLE if brute_force(told) else Outcome.NOT_LINEARIZABLE
    assert check(told).outcome is expected


@given(plausible())
@settings(max_examples=30)
def test_what_one_register_answered_is_linearizable_however_the_calls_overlap(
    told: list[Operation],
) -> None:
    assert check(told).outcome is Outcome.LINEARIZABLE


GOOD = {
    "lapsed, taken over, late call refused": [
        claim("a", 0, 2, 1),
        op(Call.SWEEP, "a", 5, 5),
        claim("b", 6, 7, 2),
        op(Call.RENEW, "a", 6, 9, REFUSED),
        op(Call.COMPLETE, "b", 10, 11),
    ],
    "lapsed and revived before anybody claimed": [
        claim("a", 0, 1, 1),
        op(Call.SWEEP, "a", 5, 5),
        op(Call.RENEW, "a", 6, 7),
        op(Call.COMPLETE, "a", 8, 9),
    ],
    "a claim whose answer was lost is repeated": [
        op(Call.CLAIM, "a", 0, 1, NONE),
        claim("a", 3, 4, 1),
    ],
    "a result whose answer was lost, repeated": [
        claim("a", 0, 1, 1),
        op(Call.COMPLETE, "a", 2, 3, NONE),
        op(Call.COMPLETE, "a", 6, 7),
    ],
    "a failure told twice": [
        claim("a", 0, 1, 1),
        op(Call.FAIL, "a", 2, 3),
        claim("b", 4, 5, 2),
        op(Call.FAIL, "a", 6, 7),
    ],
    "a result that nobody heard of took effect late": [
        claim("a", 0, 1, 1),
        op(Call.COMPLETE, "a", 2, 3, NONE),
        op(Call.RENEW, "a", 4, 5),
        op(Call.CLAIM, "b", 8, 9, REFUSED),
    ],
}
BAD = {
    "two hold it at once": [claim("a", 0, 1, 1), claim("b", 2, 3, 2)],
    "a fenced holder renews": [
        claim("a", 0, 1, 1),
        op(Call.SWEEP, "a", 2, 2),
        claim("b", 3, 4, 2),
        op(Call.RENEW, "a", 5, 6),
    ],
    "two results": [
        claim("a", 0, 1, 1),
        op(Call.SWEEP, "a", 2, 2),
        claim("b", 3, 4, 2),
        op(Call.COMPLETE, "b", 5, 6),
        op(Call.COMPLETE, "a", 7, 8),
    ],
    "an attempt number comes twice": [
        claim("a", 0, 1, 1),
        op(Call.SWEEP, "a", 2, 2),
        claim("b", 3, 4, 1),
    ],
    "a holder is refused": [claim("a", 0, 1, 1), op(Call.RENEW, "a", 2, 3, REFUSED)],
    "an answered result was forgotten": [
        claim("a", 0, 1, 1),
        op(Call.COMPLETE, "a", 2, 3),
        claim("b", 4, 5, 2),
    ],
    "claimed again after a failure that was final": [
        claim("a", 0, 1, 1),
        Operation(Call.FAIL, "a", 2, 3, final=True),
        claim("b", 4, 5, 2),
    ],
}


@pytest.mark.parametrize("name", GOOD)
def test_a_good_history_has_an_order(name: str) -> None:
    assert check(GOOD[name]).outcome is Outcome.LINEARIZABLE


@pytest.mark.parametrize("name", BAD)
def test_a_bad_history_has_none_and_what_is_stuck_is_named(name: str) -> None:
    found = check(BAD[name])
    assert found.outcome is Outcome.NOT_LINEARIZABLE
    assert found.stuck == (BAD[name][-1],)


def test_a_thousand_attempts_one_after_the_other_are_soon_judged() -> None:
    told = []
    for number in range(1, 1001):
        lease = f"l{number}"
        told += [claim(lease, number * 4, number * 4 + 1, number)]
        told += [op(Call.SWEEP, lease, number * 4 + 2, number * 4 + 2)]
        told += [op(Call.RENEW, "l0", number * 4, number * 4 + 6, REFUSED)]
    found = check(told)
    assert found.outcome is Outcome.LINEARIZABLE
    assert found.visited < 10_000


def test_beyond_its_budget_the_search_says_that_it_does_not_know() -> None:
    told = [op(Call.RENEW, f"l{number}", 0, 9, REFUSED) for number in range(30)]
    told.append(op(Call.RENEW, "nobody", 0, 9))
    assert check(told, budget=500).outcome is Outcome.UNDECIDED
