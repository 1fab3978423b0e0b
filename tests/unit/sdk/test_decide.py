"""Restarts of a local run: the shared policy, within the budget of a task."""

import pytest

from flashruntime.protocol.budget import MAX_LOSS_RUN, MAX_SAME_RUN, Budget
from flashruntime.protocol.failures import Decision, EndedBy, Evidence, RecoveryAction
from flashruntime.recovery import decide
from flashruntime.sdk.decide import failure_mark, history_of

EXIT = Evidence(ended_by=EndedBy.EXIT, exit_code=1)
KILLED = Evidence(ended_by=EndedBy.SIGNAL, signal=9)
PREEMPTED = Evidence(ended_by=EndedBy.SIGNAL, signal=15)
BUG = Evidence(ended_by=EndedBy.EXIT, exit_code=1, error_type="ValueError", message="x")
FAIL, RETRY = RecoveryAction.FAIL_JOB, RecoveryAction.RETRY_TASK


def decide_task(evidence: Evidence, budget: Budget, most: int, key: str) -> Decision:
    return decide(evidence, history_of(evidence, budget, most, key))


def attempts_until_fail(
    evidence: Evidence, max_restarts: int, *, steps: list[int] | None = None
) -> int:
    """Play a task whose every attempt ends like this; `steps` are the checkpoints reached."""
    budget = Budget()
    for attempt in range(1, 1_000):
        if steps:
            budget = budget.reached(steps[min(attempt, len(steps)) - 1])
        decision = decide_task(evidence, budget, max_restarts, f"t#{attempt}")
        if decision.action is FAIL:
            return attempt
        budget = budget.spend(decision, failure_mark(evidence))
    raise AssertionError("it never ends")


@pytest.mark.parametrize(
    ("evidence", "max_restarts", "attempts"),
    [
        (BUG, 5, 1),
        (EXIT, 0, 1),
        (EXIT, 2, 3),
        (EXIT, 50, MAX_SAME_RUN),
        (EXIT.model_copy(update={"step": 7}), 50, 2),
        (KILLED, 0, 1),
        (KILLED, 20, 21),
        (PREEMPTED, 0, 1),
        (PREEMPTED, 1, MAX_LOSS_RUN),
    ],
)
def test_every_kind_of_failure_ends_after_its_own_number_of_attempts(
    evidence: Evidence, max_restarts: int, attempts: int
) -> None:
    """F7, cases 043, 131, 133."""
    assert attempts_until_fail(evidence, max_restarts) == attempts


def test_043_a_crash_loop_without_a_word_backs_off_and_ends_early() -> None:
    budget, waits = Budget(), []
    while True:
        decision = decide_task(EXIT, budget, 50, f"t#{len(waits)}")
        if decision.action is FAIL:
            break
        waits.append(decision.backoff_s)
        budget = budget.spend(decision, failure_mark(EXIT))
    assert len(waits) == MAX_SAME_RUN - 1
    assert all(later > earlier for earlier, later in zip(waits, waits[2:], strict=False))
    assert "the same failure again without progress" in decision.reason


def test_progress_renews_the_budget() -> None:
    assert attempts_until_fail(KILLED, 2, steps=[1, 2, 3, 4, 5, 5]) == 7
    assert attempts_until_fail(PREEMPTED, 1, steps=[1, 1, 1, 9]) == MAX_LOSS_RUN + 3


def test_waits_grow_and_are_spread() -> None:
    budget, waits = Budget(), []
    for attempt in range(5):
        decision = decide_task(KILLED, budget, 10, f"t#{attempt}")
        waits.append(decision.backoff_s)
        budget = budget.spend(decision, failure_mark(KILLED))
    assert all(later > earlier for earlier, later in zip(waits, waits[2:], strict=False))
    others = {decide_task(KILLED, Budget(), 10, f"task-{i}").backoff_s for i in range(20)}
    assert len(others) > 10


def test_the_reason_speaks_of_restarts() -> None:
    budget = Budget(errors=2)
    assert decide_task(KILLED, budget, 2, "").reason.startswith(
        "3 failed attempts, max_restarts is 2; last: the process was killed"
    )
    assert decide_task(BUG, Budget(), 0, "").reason == "ValueError: x [rule user-type]"
