"""The same failure at many places at once stops the repairs that would feed it."""

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
from flashruntime.recovery.incidents import Bounds, Judge
from flashruntime.testing import ManualClock

CRASH = Evidence(ended_by=EndedBy.SIGNAL, signal=11)
BUG = Evidence(ended_by=EndedBy.EXIT, exit_code=1, error_type="ValueError", message="x")
MEMORY = Evidence(ended_by=EndedBy.EXIT, exit_code=1, error_type="MemoryError", message="")
FREEZE, RETRY = RecoveryAction.FREEZE_AUTOMATION, RecoveryAction.RETRY_TASK
BOUNDS = Bounds(tasks=3, nodes=2, window_s=30.0, freeze_s=15.0)


class World:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.judge = Judge(self.clock.monotonic_ns, BOUNDS)

    def fails(
        self, task: int, evidence: Evidence = CRASH, *, node: int | None = None, errors: int = 0
    ) -> Decision:
        history = History(attempt=f"t{task}#1", errors=errors, max_errors=5)
        return self.judge.decide(
            evidence, history, f"t{task}", f"n{task if node is None else node}"
        )


def test_enough_tasks_on_enough_nodes_are_an_incident() -> None:
    world = World()
    assert [world.fails(task).action for task in range(3)] == [RETRY, RETRY, FREEZE]
    frozen = world.fails(7)
    assert frozen.failure_class is FailureClass.CORRELATED_INCIDENT
    assert "worker_crash of 4 tasks on 4 nodes within 30 s" in frozen.reason
    assert frozen.backoff_s == pytest.approx(15.0)
    assert frozen.history is not None
    assert frozen.history.incident is not None
    assert not frozen.history.incident.began, "one freeze, not one a failure"


def test_the_freeze_ends_and_the_next_is_twice_as_long() -> None:
    world = World()
    lengths = []
    for _ in range(3):
        decisions = [world.fails(task) for task in range(3)]
        lengths.append(decisions[-1].backoff_s)
        world.clock.advance(lengths[-1])
    assert lengths == pytest.approx([15.0, 30.0, 60.0])
    world.clock.advance(1_000)
    assert [world.fails(task).action for task in range(3)] == [RETRY, RETRY, FREEZE]


def test_a_freeze_whose_record_was_lost_begins_anew_with_the_repeated_report() -> None:
    world = World()
    for task in range(2):
        world.fails(task)
        world.judge.keep()
    assert world.fails(2).action is FREEZE
    world.judge.lose()
    again = world.fails(2)
    world.judge.keep()
    assert again.history is not None
    assert again.history.incident is not None
    assert (again.history.incident.began, again.history.incident.tasks) == (True, 3)
    world.judge.lose()
    later = world.fails(3).history
    assert later is not None
    assert later.incident is not None
    assert not later.incident.began


@pytest.mark.parametrize("evidence", [BUG, MEMORY])
def test_what_tasks_that_are_alike_do_alike_is_no_incident(evidence: Evidence) -> None:
    world = World()
    assert FREEZE not in {world.fails(task, evidence).action for task in range(20)}


def test_one_task_again_and_again_or_one_sick_node_is_no_incident() -> None:
    world = World()
    assert FREEZE not in {world.fails(1, node=n).action for n in range(9)}
    assert FREEZE not in {World().fails(n, node=1).action for n in range(9)}
    slow = World()
    for task in range(9):
        slow.clock.advance(31)
        assert slow.fails(task).action is RETRY


def test_a_freeze_spends_the_budget_of_what_failed() -> None:
    world = World()
    for task in range(4):
        last = world.fails(task, errors=4)
    assert (last.action, last.exhausted) == (RecoveryAction.FAIL_JOB, True)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.floats(0, 40)), max_size=40))
def test_decisions_depend_on_nothing_but_what_they_record(
    failures: list[tuple[int, int, float]],
) -> None:
    """Made again from the recorded history alone, each comes out the same."""
    from flashruntime.recovery import decide

    world = World()
    for task, node, wait_s in failures:
        world.clock.advance(wait_s)
        made = world.fails(task, node=node)
        again = decide(CRASH, made.history or History())
        assert again == made
        if made.action is FREEZE:
            assert made.backoff_s > 0
