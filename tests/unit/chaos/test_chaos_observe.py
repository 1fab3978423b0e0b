"""Triggers by state."""

from dataclasses import replace
from typing import Any

import pytest

from chaos.model import (
    JobView,
    Landed,
    NoTarget,
    NotOurs,
    Observation,
    TaskView,
    Trigger,
)
from chaos.ports import RunSpec
from chaos.stage import resolvable, resolve
from chaos.testing import FakeMachine
from chaos.triggers import holds

TASK = TaskView("t", "LEASED", node_id="worker-1", lease_id="l1", attempts=1, step=40)
SEEN = Observation(
    elapsed_s=5.0,
    jobs={"main": JobView("main", "job-1", "RUNNING", TASK, checkpoints=2)},
    events=(
        {"type": "LEASE_CLAIMED", "job_id": "job-1", "task_id": "t", "lease_id": "l1"},
        {"type": "LEASE_EXPIRED", "job_id": "job-2", "task_id": "u", "lease_id": "x"},
    ),
    receipts={"f": Landed.MISSED},
)


@pytest.mark.parametrize(
    ("trigger", "expected"),
    [
        (Trigger(), True),
        (Trigger(step_at_least=40), True),
        (Trigger(step_at_least=41), False),
        (Trigger(checkpoints_at_least=2), True),
        (Trigger(checkpoints_at_least=3), False),
        (Trigger(after="f"), True),
        (Trigger(after="g"), False),
        (Trigger(event="LEASE_CLAIMED"), True),
        (Trigger(event="LEASE_EXPIRED"), False),
        (Trigger(elapsed_s=5.0), True),
        (Trigger(elapsed_s=5.1), False),
        (Trigger(step_at_least=40, elapsed_s=9.0), False),
        (Trigger(role="reference", step_at_least=0), False),
    ],
)
def test_a_trigger_holds_when_all_that_it_asks_for_holds(trigger: Trigger, expected: bool) -> None:
    assert holds(trigger, SEEN) is expected


def world(run_id: str = "run-1") -> Any:
    return FakeMachine().world(RunSpec("run-1", 3))


def test_the_holder_of_a_job_is_its_node_with_its_lease_and_listener() -> None:
    target = resolve("holder of main", SEEN, world(), "run-1")
    assert target.container is not None
    assert (target.container.service, target.listener) == ("worker-1", "worker-1")
    assert (target.lease_id, target.attempt_number, target.task_id) == ("l1", 1, "t")


def test_a_container_of_another_run_is_refused() -> None:
    with pytest.raises(NotOurs, match="not touched"):
        resolve("holder of main", SEEN, world(), "run-2")
    with pytest.raises(NotOurs):
        resolve("coordinator", SEEN, world(), "run-2")


def test_a_lease_whose_holder_was_killed_has_no_holder_though_the_coordinator_says_so() -> None:
    """Else the next fault would aim at a dead worker until the lease lapses."""
    lost = replace(SEEN, lost=frozenset({"l1"}))
    assert resolvable("holder of main", SEEN)
    assert not resolvable("holder of main", lost)
    assert resolvable("checkpoints of main", lost)
    with pytest.raises(NoTarget, match="nobody holds"):
        resolve("holder of main", lost, world(), "run-1")


def test_checkpoints_have_no_container_and_need_no_holder() -> None:
    target = resolve("checkpoints of main", SEEN, world(), "run-1")
    assert (target.container, target.task_id) == (None, "t")


@pytest.mark.parametrize("symbol", ["holder of nobody", "checkpoints of nobody", "worker-1", ""])
def test_what_is_no_target_says_so(symbol: str) -> None:
    with pytest.raises(NoTarget):
        resolve(symbol, SEEN, world(), "run-1")


def test_a_task_has_moved_on_when_a_later_claim_of_it_is_seen() -> None:
    again = {"type": "LEASE_CLAIMED", "job_id": "job-1", "task_id": "t", "lease_id": "l2"}
    later = Observation(jobs=SEEN.jobs, events=(*SEEN.events, again))
    assert not SEEN.moved_on("l1")
    assert later.moved_on("l1")
    assert not later.moved_on("l2")
