"""Lost workers, preemptions and the user's own errors have budgets of their own."""

from typing import Any

import pytest

from flashruntime.leases.manager import LeaseManager
from flashruntime.protocol.failures import EndedBy, Evidence
from flashruntime.protocol.jobs import JobState
from flashruntime.protocol.tasks import FailAnswer, FailRequest, Lease
from flashruntime.recovery.incidents import Judge

BUG = Evidence(ended_by=EndedBy.EXIT, exit_code=1, error_type="ValueError", message="no such lr")
PREEMPTED = Evidence(ended_by=EndedBy.STOPPED, signal=15)
KILLED = Evidence(ended_by=EndedBy.SIGNAL, signal=9)


class Budgeted:
    """A job that allows two failed attempts, and a coordinator that is restarted."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.restart()
        world.submit(max_attempts=2)

    def restart(self) -> None:
        self.world.restart()
        self.judge = Judge(self.world.time.monotonic_ns)
        self.world.manager = LeaseManager(self.world.store, self.world.time, self.judge.decide)

    def claim(self) -> Lease:
        self.world.time.advance(400)
        lease: Lease = self.world.claim()
        return lease

    def lose(self) -> None:
        """A worker holds the task, and is never heard of again."""
        self.claim()
        assert self.world.lapse() == 1

    def fail(self, evidence: Evidence) -> FailAnswer:
        request = FailRequest(reason="it broke", evidence=evidence)
        answer: FailAnswer = self.world.manager.fail(
            self.claim().lease_id, request, self.judge.decide
        )
        return answer

    @property
    def spent(self) -> tuple[int, int]:
        task = self.world.task()
        return task.errors, task.losses


@pytest.fixture
def budgeted(world: Any) -> Budgeted:
    return Budgeted(world)


def test_131_workers_that_are_lost_spend_nothing_of_the_users_budget(budgeted: Budgeted) -> None:
    """Five are lost, over two restarts of the coordinator, though only two errors are allowed."""
    for number in range(5):
        budgeted.lose()
        if number % 2:
            budgeted.restart()
    lease = budgeted.claim()
    assert budgeted.spent == (0, 5)
    assert lease.attempt_number == 6
    assert budgeted.world.complete(lease).accepted
    assert budgeted.world.manager.job("job-1").state is JobState.SUCCEEDED


def test_131_an_error_ends_the_job_at_once_also_after_losses(budgeted: Budgeted) -> None:
    for _ in range(2):
        budgeted.lose()
    assert budgeted.fail(PREEMPTED).decision.retries
    budgeted.restart()
    assert budgeted.spent == (0, 3)
    assert not budgeted.fail(BUG).decision.retries
    assert budgeted.spent == (1, 3)
    job = budgeted.world.manager.job("job-1")
    assert job.state is JobState.FAILED
    assert "no such lr" in (job.reason or "")


def test_131_errors_are_counted_across_losses_and_restarts(budgeted: Budgeted) -> None:
    assert budgeted.fail(KILLED).decision.retries
    budgeted.lose()
    budgeted.restart()
    assert not budgeted.fail(KILLED).decision.retries
    assert budgeted.spent == (2, 1)
