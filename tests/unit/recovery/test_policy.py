"""One table decides; equal evidence gives equal decisions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashruntime.protocol.failures import (
    Decision,
    EndedBy,
    Evidence,
    FailureClass,
    History,
    RecoveryAction,
)
from flashruntime.recovery import POLICY_VERSION
from flashruntime.recovery import decide as decide_with
from flashruntime.recovery.policy import TABLE
from flashruntime.recovery.rules import RULES

CRASH = Evidence(ended_by=EndedBy.SIGNAL, signal=11, step=4)
PLAIN = Evidence(ended_by=EndedBy.EXIT, exit_code=1)
STOPPED = Evidence(ended_by=EndedBy.STOPPED, exit_code=143)


def decide(
    evidence: Evidence, errors: int, max_errors: int, repeated: bool, *, jitter_key: str = ""
) -> Decision:
    history = History(attempt=jitter_key, errors=errors, max_errors=max_errors, repeated=repeated)
    return decide_with(evidence, history)


def error(error_type: str, message: str = "") -> Evidence:
    return Evidence(ended_by=EndedBy.EXIT, exit_code=1, error_type=error_type, message=message)


def test_every_class_has_a_row() -> None:
    assert set(TABLE) == set(FailureClass)


def test_a_deterministic_error_fails_the_job_at_once() -> None:
    decision = decide(error("KeyError", "'x'"), 0, 3, False)
    assert (decision.action, decision.exhausted) == (RecoveryAction.FAIL_JOB, False)
    assert decision.reason == "KeyError: 'x' [rule user-type]"
    assert decision.policy_version == POLICY_VERSION


def test_an_unknown_error_is_retried_within_its_budget() -> None:
    actions = [decide(PLAIN, errors, 3, False).action for errors in range(3)]
    assert actions == ["retry_task", "retry_task", "fail_job"]
    last = decide(PLAIN, 2, 3, False)
    assert last.exhausted
    assert "3 failed attempts, maxTaskAttempts is 3" in last.reason
    assert "exit code 1" in last.reason


def test_a_budget_of_one_is_exactly_one_attempt() -> None:
    assert decide(PLAIN, 0, 1, False).exhausted


def test_preemptions_never_spend_the_budget() -> None:
    decision = decide(STOPPED, 99, 1, False)
    assert decision.action is RecoveryAction.RETRY_TASK
    assert not decision.counts_as_error
    assert decision.backoff_s == 0.0


@pytest.mark.parametrize(
    ("evidence", "final"),
    [(CRASH, True), (PLAIN, True), (error("ConnectionError"), False), (STOPPED, False)],
)
def test_the_same_failure_at_the_same_step_is_deterministic(
    evidence: Evidence, final: bool
) -> None:
    """What comes from the network or from outside may well repeat and pass later."""
    decision = decide(evidence, 1, 10, True)
    assert (decision.action is RecoveryAction.FAIL_JOB) == final
    assert ("again" in decision.reason) == final


def test_waits_grow_with_errors_and_stay_bounded() -> None:
    waits = [decide(PLAIN, errors, 1000, False).backoff_s for errors in range(40)]
    for errors, wait in enumerate(waits):
        longest = min(30.0, 2.0**errors)
        assert longest / 2 <= wait <= longest


def test_a_full_disk_waits_longer_than_a_crash() -> None:
    full = decide(error("OSError", "[Errno 28] No space left on device"), 0, 3, False)
    assert full.failure_class is FailureClass.RESOURCE_EXHAUSTED
    assert full.backoff_s > 2 * decide(CRASH, 0, 3, False).backoff_s


def test_jitter_spreads_attempts_and_is_reproducible() -> None:
    waits = {decide(PLAIN, 3, 99, False, jitter_key=f"t{n}#1").backoff_s for n in range(20)}
    assert len(waits) > 10
    again = decide(PLAIN, 3, 99, False, jitter_key="t1#1")
    assert again == decide(PLAIN, 3, 99, False, jitter_key="t1#1")


@given(
    st.builds(Evidence, ended_by=st.sampled_from(EndedBy), exit_code=st.integers(0, 255)),
    st.integers(0, 2_000),
    st.integers(1, 1_000),
    st.booleans(),
)
def test_counted_errors_always_come_to_an_end(
    evidence: Evidence, errors: int, max_errors: int, repeated: bool
) -> None:
    decision = decide(evidence, errors, max_errors, repeated)
    if decision.counts_as_error and errors + 1 >= max_errors:
        assert decision.action is RecoveryAction.FAIL_JOB
        assert decision.backoff_s == 0.0
    assert decision == decide(evidence, errors, max_errors, repeated)


def test_a_faulty_accelerator_is_left_after_a_pause_and_not_for_ever() -> None:
    """The user's budget is not spent, but the same fault at the same step is no accident."""
    fault = error("RuntimeError", "CUDA error: an illegal memory access was encountered")
    first = decide(fault, 0, 1, False)
    assert (first.action, first.counts_as_error) == (RecoveryAction.REPLACE_NODE, False)
    assert first.backoff_s >= 2.5
    assert decide(fault, 0, 99, True).action is RecoveryAction.FAIL_JOB


def test_every_rule_has_a_name_of_its_own() -> None:
    names = [rule.name for rule in RULES]
    assert len(names) == len(set(names))
