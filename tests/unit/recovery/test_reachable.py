"""Every class has evidence that shows it, and the table names an action for each."""

from typing import Any

import pytest

from flashruntime.protocol.failures import (
    Evidence,
    FailureClass,
    History,
    Incident,
    RecoveryAction,
)
from flashruntime.recovery import decide
from flashruntime.recovery.policy import TABLE

C, A = FailureClass, RecoveryAction
SHOWN: dict[FailureClass, dict[str, Any]] = {
    C.APPLICATION_ERROR: {"ended_by": "exit", "exit_code": 1, "error_type": "KeyError"},
    C.DATA_ERROR: {"ended_by": "exit", "exit_code": 1, "error_type": "JSONDecodeError"},
    C.WORKER_CRASH: {"ended_by": "signal", "signal": 11},
    C.NODE_LOSS: {"ended_by": "lease_lost"},
    C.ACCELERATOR_FAILURE: {
        "ended_by": "exit", "exit_code": 1, "error_type": "RuntimeError",
        "message": "CUDA error: uncorrectable ECC error encountered",
    },
    C.COMMUNICATION_ERROR: {
        "ended_by": "exit", "exit_code": 1, "error_type": "ConnectionResetError",
    },
    C.NETWORK_DEGRADATION: {
        "ended_by": "worker_error", "error_type": "ReadTimeout", "message": "on the worker: slow",
    },
    C.STORAGE_TIMEOUT: {
        "ended_by": "exit", "exit_code": 1, "error_type": "OSError", "message": "[Errno 5] EIO",
    },
    C.ARTIFACT_CORRUPTION: {"ended_by": "bad_inputs"},
    C.PREEMPTION: {"ended_by": "stopped"},
    C.CORRELATED_INCIDENT: {"ended_by": "signal", "signal": 11},
    C.CONTROL_PLANE_FAILURE: {
        "ended_by": "worker_error", "error_type": "CoordinatorUnreachable", "message": "no answer",
    },
    C.RESOURCE_EXHAUSTED: {"ended_by": "exit", "exit_code": 1, "error_type": "MemoryError"},
    C.UNKNOWN: {"ended_by": "exit", "exit_code": 1},
}  # fmt: skip
MANY = Incident(failure_class=C.WORKER_CRASH, tasks=9, nodes=3, window_s=30, frozen_s=15)


@pytest.mark.parametrize("kind", FailureClass)
def test_evidence_can_show_each_class(kind: FailureClass) -> None:
    """F5."""
    incident = MANY if kind is C.CORRELATED_INCIDENT else None
    history = History(max_errors=3, incident=incident)
    decision = decide(Evidence.model_validate(SHOWN[kind]), history)
    assert decision.failure_class is kind
    assert decision.action is TABLE[kind].action


def test_every_action_is_chosen_somewhere() -> None:
    """F5."""
    seen = {decide(Evidence.model_validate(fields), History(max_errors=3)).action
            for fields in SHOWN.values()}  # fmt: skip
    crash = Evidence.model_validate(SHOWN[C.WORKER_CRASH])
    group = crash.model_copy(update={"ranks": 4})
    seen.add(decide(group, History(max_errors=3)).action)
    seen.add(decide(crash, History(max_errors=3, incident=MANY)).action)
    stuck = Evidence.model_validate(SHOWN[C.STORAGE_TIMEOUT])
    seen.add(decide(stuck, History(errors=2, max_errors=3)).action)
    assert seen == set(RecoveryAction)


def test_only_storage_that_stays_away_pauses_a_job_and_says_so() -> None:
    for kind, fields in SHOWN.items():
        last = decide(Evidence.model_validate(fields), History(errors=2, max_errors=3))
        paused = last.action is A.PAUSE_JOB
        assert paused == (kind is C.STORAGE_TIMEOUT)
        assert paused == last.reason.startswith("paused: ")


def test_lost_attempts_have_a_budget_and_a_growing_wait_of_their_own() -> None:
    """F7: errors and losses are counted apart; only the first loss is followed at once."""
    gone = Evidence.model_validate(SHOWN[C.PREEMPTION])
    waits = [decide(gone, History(loss_run=run, errors=99, max_errors=3)).backoff_s
             for run in range(12)]  # fmt: skip
    assert waits[0] == 0.0
    assert 0.25 <= waits[1] <= 0.5
    assert 15.0 <= waits[-1] <= 30.0
    last = decide(gone, History(loss_run=99, max_errors=3))
    assert (last.action, last.exhausted) == (A.FAIL_JOB, True)
