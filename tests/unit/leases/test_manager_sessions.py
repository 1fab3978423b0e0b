"""Sessions: a stream that ends gives its leases up, and takes them back while nobody has them."""

from typing import Any

import pytest

from flashruntime.errors import NotFound, Superseded
from flashruntime.leases.nodes import Link
from flashruntime.leases.sessions import SessionEnd
from flashruntime.protocol.nodes import NodeRegistration, SessionEnding
from flashruntime.protocol.tasks import ClaimRequest, TaskState


def register(world: Any, node_id: str = "w1") -> str:
    return str(world.manager.register_node(NodeRegistration(node_id=node_id)).session_id)


def connected(world: Any, node_id: str = "w1") -> Link:
    link: Link = world.manager.open_session(node_id, register(world, node_id))
    return link


def end(world: Any, link: Link, heard: dict[str, int] | None = None) -> int:
    """End a stream and, at once, its grace."""
    ended = SessionEnd(link, world.time.mono_ns, SessionEnding.CLOSED)
    return int(world.manager.end_sessions([ended], [ended], heard or {}))


def test_the_leases_of_a_session_that_ended_can_be_claimed_and_are_fenced_by_that(
    world: Any,
) -> None:
    world.submit(2)
    link = connected(world)
    leases = [world.claim(session_id=link.session_id) for _ in range(2)]
    assert end(world, link) == 2
    assert world.task().state is TaskState.PENDING
    world.beat(leases[1])
    assert world.claim("w2").task_id == leases[0].task_id
    with pytest.raises(Superseded):
        world.beat(leases[0])
    assert (world.task().losses, world.task().errors) == (1, 0)
    assert world.count("LEASE_EXPIRED") == 2


def test_a_session_that_is_back_takes_up_what_nobody_has_claimed(world: Any) -> None:
    world.submit(2)
    link = connected(world)
    kept, taken = (world.claim(session_id=link.session_id) for _ in range(2))
    end(world, link)
    world.time.advance(1)
    world.claim("w2")
    world.manager.open_session("w1", link.session_id)
    assert world.task(1).lease_id == taken.lease_id
    assert [world.task(index).state for index in range(2)] == [TaskState.LEASED] * 2
    assert world.task(1).losses == 0
    world.beat(taken)
    with pytest.raises(Superseded):
        world.beat(kept)


def test_a_session_that_claims_is_back_too(world: Any) -> None:
    """Else a worker with several tasks would take its own from itself."""
    world.submit()
    link = connected(world)
    lease = world.claim(session_id=link.session_id)
    end(world, link)
    again = ClaimRequest(node_id="w1", session_id=link.session_id)
    assert world.manager.claim(again) is None
    world.beat(lease)


def test_what_is_back_before_the_end_is_told_loses_nothing(world: Any) -> None:
    world.submit()
    link = connected(world)
    world.claim(session_id=link.session_id)
    ended = SessionEnd(link, world.time.mono_ns, SessionEnding.CLOSED)
    world.manager.end_sessions([ended], [])
    world.manager.open_session("w1", link.session_id)
    assert world.manager.end_sessions([], [ended]) == 0
    assert world.task().state is TaskState.LEASED


def test_a_heartbeat_after_the_end_keeps_its_lease_and_no_other(world: Any) -> None:
    world.submit(3)
    link = connected(world)
    early, late, silent = (world.claim(session_id=link.session_id) for _ in range(3))
    now_ns = world.time.mono_ns
    heard = {early.lease_id: now_ns - 1, late.lease_id: now_ns}
    assert end(world, link, heard) == 2
    states = [world.task(index).state for index in range(3)]
    assert states == [TaskState.PENDING, TaskState.LEASED, TaskState.PENDING]
    assert silent.task_index == 2


def test_leases_belong_to_the_session_in_which_they_were_claimed(world: Any) -> None:
    """Without a stream a lease lives by itself; a claim without session is of the open one."""
    world.submit(3)
    world.claim()
    link = connected(world)
    world.claim()
    other = connected(world, "w2")
    world.claim("w2")
    assert end(world, link) == 1
    assert [world.task(index).state for index in range(3)] == [
        TaskState.LEASED,
        TaskState.PENDING,
        TaskState.LEASED,
    ]
    assert end(world, other) == 1


def test_a_session_opens_for_the_newest_registration_alone(world: Any) -> None:
    with pytest.raises(NotFound, match="register"):
        world.manager.open_session("w1", None)
    old = register(world)
    new = register(world)
    with pytest.raises(Superseded, match="of its own"):
        world.manager.open_session("w1", old)
    assert world.manager.open_session("w1", None).session_id == new


def test_a_worker_that_registers_again_goes_on_with_its_session(world: Any) -> None:
    """Else it would lose what it runs. An older session than the newest is not taken up."""
    first = register(world)
    again = NodeRegistration(node_id="w1", session_id=first)
    assert world.manager.register_node(again).session_id == first
    newer = register(world)
    assert world.manager.register_node(again).session_id not in {first, newer}


def test_nodes_tell_whether_they_are_connected(world: Any) -> None:
    first = connected(world)
    again = world.manager.open_session("w1", first.session_id)
    end(world, first)
    assert world.manager.nodes().items[0].connected, "an older stream says nothing of a newer one"
    end(world, again)
    assert not world.manager.nodes().items[0].connected
    world.manager.open_session("w1", first.session_id)
    world.restart()
    assert not world.manager.nodes().items[0].connected
    kinds = [event.type.value for event in world.manager.events(None, 0, 100).items]
    assert kinds.count("NODE_SESSION_STARTED") == 3
    ended = [e for e in world.manager.events(None, 0, 100).items if "ENDED" in e.type.value]
    assert ended[0].data == {
        "node_id": "w1",
        "session_id": first.session_id,
        "reason": "closed",
        "ended_ns": world.time.mono_ns,
    }


def test_a_coordinator_that_starts_again_has_lost_nobody(world: Any) -> None:
    world.submit()
    link = connected(world)
    lease = world.claim(session_id=link.session_id)
    world.restart()
    assert world.task().state is TaskState.LEASED
    assert world.manager.open_session("w1", link.session_id).session_id == link.session_id
    world.beat(lease)


def test_131_lost_workers_spend_no_error(world: Any, policies: Any) -> None:
    """Five kills, a restart of the coordinator, then a real error: that one is the first."""
    world.submit(max_attempts=2)
    for number in range(5):
        link = connected(world, f"w{number}")
        world.claim(f"w{number}", session_id=link.session_id)
        assert end(world, link) == 1
    world.restart()
    lease = world.claim("last")
    assert (world.task().losses, world.task().errors) == (5, 0)
    world.fail(lease, policies.retry())
    assert world.task().errors == 1


def test_a_task_says_how_long_its_step_has_not_moved(world: Any) -> None:
    world.submit()
    lease = world.claim()
    assert world.task().step_age_s is None
    world.time.advance(2)
    world.beat(lease, step=5)
    world.time.advance(3)
    world.beat(lease, step=5)
    world.time.advance(1)
    assert world.task().step_age_s == 4.0
    world.beat(lease, step=6)
    assert world.task().step_age_s == 0.0
    world.complete(lease)
    assert world.task().step_age_s is None


def test_a_session_is_back_also_where_what_it_had_was_deleted(world: Any) -> None:
    world.submit()
    link = connected(world)
    world.claim(session_id=link.session_id)
    end(world, link)
    world.manager.cancel_job("job-1")
    world.manager.delete_job("job-1")
    while (step := world.manager.purge()) is not None and not step.done:
        pass
    again = world.manager.open_session("w1", link.session_id)
    assert again.session_id == link.session_id
