"""Steps that are computed again, and checkpoints that attempts cannot get away from."""

from typing import Any

import pytest

from flashruntime.leases.checkpoint_rules import Offer
from flashruntime.protocol.checkpoints import Manifest, Part, TaskName
from flashruntime.protocol.failures import Decision, EndedBy, Evidence
from flashruntime.protocol.tasks import FailRequest, HeartbeatRequest, Lease
from flashruntime.recovery.incidents import Judge
from flashruntime.recovery.replay import replay

TASK = TaskName("job-1", "0")


def beat(world: Any, lease: Lease, step: int, resumed: int | None = None, saved: int | None = None):
    request = HeartbeatRequest(step=step, resumed_from=resumed, checkpoint_step=saved)
    world.manager.heartbeat(lease.lease_id, request)


def store(world: Any, lease: Lease, step: int) -> None:
    found = Manifest(
        manifest_id=f"ckpt-{step}",
        job_id=lease.job_id,
        attempt_id=lease.lease_id,
        step=step,
        framework="none",
        world_size=1,
        compatible_world_sizes=[1],
        parts=[Part(key="p", sha256="a" * 64, size_bytes=1)],
        created="2026-01-01T00:00:00Z",
        checkpoint_duration_s=0.0,
        digest="b" * 64,
    )
    offer = Offer(found, found.model_dump_json(), None)
    world.manager.commit_checkpoint(TASK, lease.lease_id, offer)


def lost(world: Any) -> tuple[int | None, int | None, int, int]:
    found = world.manager.lost_work(TASK)
    return (
        found.reported_step,
        found.checkpoint_step,
        found.would_recompute,
        found.recomputed,
    )


def test_lost_work_is_the_way_from_the_newest_checkpoint_to_the_last_step(world: Any) -> None:
    world.submit()
    assert lost(world) == (None, None, 0, 0)
    first = world.claim()
    beat(world, first, 17)
    assert lost(world) == (17, None, 17, 0)
    store(world, first, 10)
    assert lost(world) == (17, 10, 7, 0)
    world.lapse()
    second = world.claim("w2")
    beat(world, second, 12, resumed=10)
    assert lost(world) == (12, 10, 2, 2)
    beat(world, second, 30, resumed=10, saved=30)
    assert lost(world) == (30, 10, 20, 7), "7 steps were done twice; what was not sent is not safe"
    world.restart()
    world.lapse()
    beat(world, world.claim("w3"), 15, resumed=10)
    assert lost(world) == (15, 10, 5, 12)


def test_where_the_tree_is_shared_what_attempts_tell_of_it_counts(world: Any) -> None:
    world.submit()
    first = world.claim()
    beat(world, first, 17, saved=15)
    assert lost(world) == (17, 15, 2, 0)
    world.lapse()
    second = world.claim("w2")
    beat(world, second, 15, resumed=15)
    assert lost(world) == (15, 15, 0, 0)
    assert world.task().resumed_from == 15
    world.complete(second)
    assert lost(world)[2] == 0, "nothing of a task that has ended can be lost"


STUCK = Evidence(
    ended_by=EndedBy.EXIT, exit_code=1, error_type="RuntimeError", step=7, resumed_from=7
)


class Judged:
    """A world whose coordinator decides by the real policy."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.decide = Judge(world.time.monotonic_ns).decide

    def again(self, evidence: Evidence) -> Decision:
        self.world.time.advance(400)
        request = FailRequest(reason="it broke", evidence=evidence)
        answer = self.world.manager.fail(self.world.claim().lease_id, request, self.decide)
        decision: Decision = answer.decision
        return decision


@pytest.fixture
def judged(world: Any) -> Judged:
    return Judged(world)


def test_c15_a_checkpoint_with_the_same_crash_right_after_it_twice_is_set_aside(
    judged: Judged,
) -> None:
    """The next attempt is told of it, the catalogue skips it, and the decision can be replayed."""
    world = judged.world
    world.submit(max_attempts=9)
    first = world.claim()
    assert first.suspect_step is None
    for step in (3, 7):
        store(world, first, step)
    world.manager.fail(
        first.lease_id,
        FailRequest(reason="it broke", evidence=STUCK.model_copy(update={"step": 9})),
        judged.decide,
    )
    assert judged.again(STUCK).retries
    world.restart()
    assert judged.again(STUCK).retries, "the last one was there on its own at 7"
    world.time.advance(400)
    told = world.claim("w2")
    assert told.suspect_step == 7
    found = world.manager.newest_checkpoint(TASK, ())
    assert found.record.step == 3
    beat(world, told, 4, resumed=3)
    world.lapse()
    assert world.claim("w3").suspect_step is None, "an attempt that had begun has dealt with it"
    assert [each.same for each in replay(world.manager.events("job-1", 0, 1_000).items)]


@pytest.mark.parametrize("resumed", [None, 5])
def test_a_crash_beyond_the_resume_makes_no_checkpoint_suspect(
    judged: Judged, resumed: int | None
) -> None:
    judged.world.submit(max_attempts=9)
    beyond = STUCK.model_copy(update={"resumed_from": resumed})
    assert judged.again(beyond).retries
    last = judged.again(beyond)
    assert not last.retries
    assert "the same failure again" in last.reason
