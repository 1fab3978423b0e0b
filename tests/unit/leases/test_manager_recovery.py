"""The policy on the coordinator: budgets, repeats, freezes and their record, across restarts."""

from typing import Any

import pytest

from flashruntime.leases.manager import LeaseManager
from flashruntime.protocol.failures import Decision, EndedBy, Evidence
from flashruntime.protocol.jobs import JobState
from flashruntime.protocol.tasks import FailRequest, Lease
from flashruntime.recovery.incidents import Bounds, Judge
from flashruntime.recovery.replay import replay

PLAIN = Evidence(ended_by=EndedBy.EXIT, exit_code=1, log_tail="step 1\nbye\n")
CRASH = Evidence(ended_by=EndedBy.SIGNAL, signal=11)
STUCK = Evidence(ended_by=EndedBy.EXIT, exit_code=1, error_type="OSError", message="[Errno 5] x")
BUG = Evidence(ended_by=EndedBy.EXIT, exit_code=1, error_type="KeyError", message="'lr'")
ECC = Evidence(
    ended_by=EndedBy.EXIT,
    exit_code=1,
    error_type="RuntimeError",
    message="CUDA error: uncorrectable ECC error encountered",
)


class Policed:
    """A world whose coordinator decides by the real policy."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self._start()

    def _start(self) -> None:
        bounds = Bounds(tasks=3, nodes=2, window_s=60.0, freeze_s=20.0)
        self.decide = Judge(self.world.time.monotonic_ns, bounds).decide
        self.world.manager = LeaseManager(self.world.store, self.world.time, self.decide)

    def restart(self) -> None:
        self.world.restart()
        self._start()

    def fail(self, lease: Lease, evidence: Evidence) -> Decision:
        request = FailRequest(reason="it broke", evidence=evidence)
        answer = self.world.manager.fail(lease.lease_id, request, self.decide)
        decision: Decision = answer.decision
        return decision

    def again(self, evidence: Evidence, node: str = "w1") -> Decision:
        """Wait until the task is due, claim it and let it fail like this."""
        self.world.time.advance(400)
        return self.fail(self.world.claim(node), evidence)

    def events(self, kind: str) -> list[Any]:
        return [e for e in self.world.manager.events(None, 0, 10_000).items if e.type == kind]


@pytest.fixture
def policed(world: Any) -> Policed:
    return Policed(world)


def test_a_bug_ends_the_job_and_all_of_its_tasks_at_once(policed: Policed) -> None:
    """F6."""
    policed.world.submit(tasks=5, max_attempts=9)
    leases = [policed.world.claim(f"w{n}") for n in range(3)]
    policed.fail(leases[1], BUG)
    job = policed.world.manager.job("job-1")
    assert job.state is JobState.FAILED
    assert "KeyError: 'lr'" in (job.reason or "")
    assert job.tasks["CANCELLED"] == 4
    assert policed.world.idle()


def test_the_same_failure_at_the_same_step_twice_is_final_across_a_restart(
    policed: Policed,
) -> None:
    at_seven = PLAIN.model_copy(update={"step": 7})
    policed.world.submit(max_attempts=50)
    assert policed.again(at_seven).retries
    policed.restart()
    last = policed.again(at_seven)
    assert not last.retries
    assert "the same failure again" in last.reason


def test_the_same_failure_without_steps_ends_after_eight_across_a_restart(
    policed: Policed,
) -> None:
    policed.world.submit(max_attempts=50)
    made = []
    for number in range(8):
        made.append(policed.again(PLAIN).retries)
        if number == 4:
            policed.restart()
    assert made == [True] * 7 + [False]


def test_a_new_checkpoint_renews_the_budget_across_a_restart(policed: Policed) -> None:
    """F7."""
    policed.world.submit(max_attempts=3)
    for checkpoint in (None, 10, 10, 20, 20):
        seen = CRASH.model_copy(update={"step": None, "checkpoint_step": checkpoint})
        decision = policed.again(seen)
        assert decision.retries, checkpoint
        policed.restart()
    assert policed.world.task().errors == 2
    assert policed.again(seen).exhausted


def test_a_preemption_after_progress_is_followed_at_once_and_one_without_waits(
    policed: Policed,
) -> None:
    policed.world.submit()
    stops = [Evidence(ended_by=EndedBy.STOPPED, step=step) for step in (5, 9, 9, 9, 12)]
    waits = [policed.again(stop).backoff_s for stop in stops]
    assert [wait > 0 for wait in waits] == [False, False, True, True, False]


def test_storage_that_stays_away_pauses_the_job(policed: Policed) -> None:
    policed.world.submit(tasks=2, max_attempts=2)
    other = policed.world.claim("w5")
    policed.fail(policed.world.claim("w1"), STUCK)
    policed.world.time.advance(5)
    policed.world.beat(other)
    lease = policed.world.claim("w2")
    decision = policed.fail(lease, STUCK)
    assert decision.action == "pause_job"
    job = policed.world.manager.job("job-1")
    assert job.state is JobState.FAILED
    assert "paused: 2 failed attempts, maxTaskAttempts is 2" in (job.reason or "")
    assert policed.world.idle()


def test_many_failures_at_once_freeze_retries_across_a_restart(policed: Policed) -> None:
    policed.world.submit(tasks=4, max_attempts=9)
    leases = [policed.world.claim(f"w{n}") for n in range(4)]
    decisions = [policed.fail(lease, CRASH) for lease in leases]
    actions = [decision.action for decision in decisions]
    assert actions == ["retry_task"] * 2 + ["freeze_automation"] * 2
    [frozen] = policed.events("RECOVERY_FROZEN")
    assert (frozen.data["tasks"], frozen.data["nodes"]) == (3, 3)
    policed.world.time.advance(5)
    free = {policed.world.claim("w9").task_index for _ in range(2)}
    assert free == {0, 1}, "what failed before is not frozen"
    policed.restart()
    policed.world.time.advance(19)
    assert policed.world.idle("w9")
    policed.world.time.advance(2)
    assert policed.world.claim("w9").task_index in {2, 3}


def test_a_freeze_is_told_also_where_the_task_that_began_it_has_ended(policed: Policed) -> None:
    for number in range(3):
        policed.world.submit(job_id=f"job-{number}", max_attempts=1 if number == 2 else 9)
    decisions = [policed.fail(policed.world.claim(f"w{n}"), CRASH) for n in range(3)]
    assert [each.action for each in decisions] == ["retry_task", "retry_task", "fail_job"]
    [frozen] = policed.events("RECOVERY_FROZEN")
    assert "worker_crash of 3 tasks on 3 nodes" in str(frozen.data["reason"])


def test_a_node_with_a_faulty_accelerator_is_replaced(policed: Policed) -> None:
    """L18."""
    policed.world.submit(max_attempts=1)
    decision = policed.fail(policed.world.claim("sick"), ECC)
    assert (decision.action, decision.counts_as_error) == ("replace_node", False)
    policed.world.idle("well")
    policed.world.time.advance(decision.backoff_s + 0.1)
    assert policed.world.idle("sick")
    assert policed.world.claim("well").attempt_number == 2


def test_a_lost_node_is_a_recorded_decision(policed: Policed) -> None:
    policed.world.submit()
    policed.world.claim("w1")
    policed.world.lapse()
    policed.world.claim("w2")
    [chosen] = policed.events("RECOVERY_ACTION_SELECTED")
    assert (chosen.data["failure_class"], chosen.data["action"]) == ("node_loss", "retry_task")
    assert chosen.data["counts_as_error"] is False
    assert "w1" in str(chosen.data["reason"])


def test_all_decisions_can_be_made_again_from_the_events(policed: Policed) -> None:
    policed.world.submit(tasks=6, max_attempts=4)
    many = [PLAIN, CRASH, STUCK, ECC, PLAIN.model_copy(update={"step": 3}), CRASH]
    leases = [policed.world.claim(f"w{n}") for n in range(6)]
    for lease, evidence in zip(leases, many, strict=True):
        policed.fail(lease, evidence)
    policed.restart()
    for node in ("w1", "w2", "w3"):
        policed.again(PLAIN, node)
    policed.again(CRASH.model_copy(update={"log_tail": "x" * 40_000}))
    found = list(replay(policed.world.manager.events("job-1", 0, 10_000).items))
    assert len(found) == 10
    assert [each.same for each in found] == [True] * 10


def test_another_policys_decision_is_not_judged_by_this_one(policed: Policed) -> None:
    policed.world.submit()
    policed.again(PLAIN)
    events = policed.world.manager.events("job-1", 0, 10_000).items
    older = [e.model_copy(update={"data": {**e.data, "policy_version": "2025.9"}}) for e in events]
    [only] = replay(older)
    assert only.same is None
