"""Deleting jobs, and letting go of what is old, on each store."""

from datetime import timedelta
from typing import Any

import pytest

from flashruntime.errors import Conflict, FlashError, NotFound
from flashruntime.protocol.nodes import NodeOrder, NodeRegistration
from flashruntime.protocol.tasks import ClaimRequest, CompleteRequest, HeartbeatRequest

World = Any
DAY = timedelta(days=1)


def purged(world: World) -> list[str]:
    """Delete all that is left of deleted jobs, row by row; return the digests let go."""
    freed: list[str] = []
    while (step := world.manager.purge(1)) is not None:
        freed += step.freed
        if step.done:
            world.manager.end_removal(step.removal)
    return freed


def finished(world: World, job_id: str, letter: str, **more: Any) -> Any:
    world.submit(job_id=job_id, **more)
    lease = world.claim(job_id=job_id)
    output = world.upload(lease, letter=letter)
    world.upload(lease, "spare", "c")
    assert world.complete(lease, output).accepted
    return lease


def test_a_job_is_deleted_once_it_has_ended(world: World) -> None:
    world.submit()
    with pytest.raises(Conflict, match="PENDING: cancel it first"):
        world.manager.delete_job("job-1")
    lease = world.claim()
    with pytest.raises(Conflict, match="RUNNING"):
        world.manager.delete_job("job-1")
    world.manager.cancel_job("job-1")
    world.manager.delete_job("job-1")
    with pytest.raises(NotFound):
        world.manager.job("job-1")
    assert world.manager.jobs(None, 10).items == []
    for call in (
        lambda: world.beat(lease),
        lambda: world.upload(lease),
        lambda: world.manager.admit(f"{lease.output_prefix}/x"),
    ):
        with pytest.raises(FlashError):
            call()


def test_nothing_is_left_of_a_deleted_job_and_nothing_missing_of_another(world: World) -> None:
    gone = finished(world, "job-1", "a", key="key")
    kept = finished(world, "job-2", "b")
    before = world.manager.events("job-2", 0, 100)
    world.manager.delete_job("job-1")
    assert sorted(set(purged(world))) == sorted([gone_sha(world, "a"), gone_sha(world, "c")])
    with world.store.transaction() as tx:
        assert (tx.task(gone.task_id), tx.lease(gone.lease_id)) == (None, None)
        assert tx.objects_below(f"outputs/{gone.job_id}", "", 9) == []
        assert tx.stored_bytes("job-1") == 0
    assert world.manager.events("job-2", 0, 100) == before
    assert world.manager.complete(kept.lease_id, again(kept, "b")).accepted
    assert [item.accepted for item in world.manager.job_objects("job-2").items] == [True]
    assert world.count("JOB_DELETED") == 1
    assert not [e for e in world.manager.events(None, 0, 1000).items if e.job_id == "job-1"]


def gone_sha(_world: World, letter: str) -> str:
    return letter * 64


def again(lease: Any, letter: str) -> CompleteRequest:
    key = f"{lease.output_prefix}/model.bin"
    output = {"path": "model.bin", "key": key, "sha256": letter * 64}
    return CompleteRequest.model_validate({"outputs": [output]})


def test_deleting_again_is_the_same_answer_for_a_week(world: World) -> None:
    """Rule 4: the first answer may have been lost."""
    finished(world, "job-1", "a")
    world.manager.delete_job("job-1")
    world.manager.delete_job("job-1")
    purged(world)
    world.manager.delete_job("job-1")
    assert world.count("JOB_DELETED") == 1
    world.time.advance(7 * 86_400 + 1)
    assert world.manager.forget_removals(world.time.utc_now()) == 1
    with pytest.raises(NotFound):
        world.manager.delete_job("job-1")


def test_a_deletion_goes_on_after_a_restart(world: World) -> None:
    finished(world, "job-1", "a")
    world.manager.delete_job("job-1")
    assert world.manager.purge(1) is not None
    world.restart()
    assert purged(world) != []
    assert world.manager.purge() is None


def test_an_idempotency_key_brings_a_new_job_after_its_job_was_deleted(world: World) -> None:
    first = finished(world, "job-1", "a", key="key")
    world.manager.delete_job("job-1")
    assert world.submit(job_id="job-9", key="key").job_id == "job-9"
    purged(world)
    assert world.claim(job_id="job-9").task_id != first.task_id


def test_a_late_call_during_a_deletion_brings_no_row_back(world: World) -> None:
    world.submit()
    lease = world.claim()
    world.manager.cancel_job("job-1")
    world.manager.delete_job("job-1")
    refused = 0
    while (step := world.manager.purge(1)) is not None:
        with pytest.raises(FlashError):
            world.manager.heartbeat(lease.lease_id, HeartbeatRequest())
        with pytest.raises(FlashError):
            world.manager.admit(f"{lease.output_prefix}/late")
        refused += 1
        if step.done:
            world.manager.end_removal(step.removal)
    assert refused > 3
    assert not [e for e in world.manager.events(None, 0, 1000).items if e.job_id == "job-1"]
    with world.store.transaction() as tx:
        assert tx.lease(lease.lease_id) is None


def test_jobs_are_retired_by_the_time_since_they_ended(world: World) -> None:
    finished(world, "job-1", "a")
    world.submit(job_id="open")
    world.time.advance(86_400)
    finished(world, "job-2", "b")
    assert world.manager.retire(world.time.utc_now() - 2 * DAY) == 0
    world.time.advance(86_401)
    assert world.manager.retire(world.time.utc_now() - 2 * DAY) == 1
    assert [job.job_id for job in world.manager.jobs(None, 9).items] == ["job-2", "open"]
    world.time.advance(86_400 * 99)
    assert world.manager.retire(world.time.utc_now() - 2 * DAY) == 1
    assert [job.job_id for job in world.manager.jobs(None, 9).items] == ["open"]


def test_what_no_result_took_up_goes_once_its_job_has_ended(world: World) -> None:
    for job_id in ("job-1", "job-2"):
        finished(world, job_id, "a")
    world.submit(job_id="open")
    live = world.claim(job_id="open")
    world.upload(live, "spare", "b")
    world.manager.put_object("outputs/job-1/notes", "b" * 64, 3, None)
    now = world.time.utc_now()
    assert world.manager.tidy(now).rows == 0
    later = now + timedelta(seconds=1)
    freed: list[str] = []
    while (step := world.manager.tidy(later, 2)).rows:
        freed += step.freed
    assert freed == ["c" * 64] * 2
    for job_id in ("job-1", "job-2"):
        assert [item.path for item in world.manager.job_objects(job_id).items] == ["model.bin"]
        with world.store.transaction() as tx:
            assert tx.stored_bytes(job_id) == 3
    for key in (f"{live.output_prefix}/spare", "outputs/job-1/notes"):
        assert world.manager.object(key).sha256 == "b" * 64
    world.restart()
    assert world.manager.tidy(later).rows == 0


def test_old_events_about_no_job_go(world: World) -> None:
    world.restart()
    world.time.advance(86_400)
    world.restart()
    assert world.manager.forget_events(world.time.utc_now()) == 2
    assert world.kinds() == ["COORDINATOR_STARTED"]


def test_a_node_that_is_silent_and_without_work_is_forgotten(world: World) -> None:
    for node in ("idle", "heard", "busy"):
        world.manager.register_node(NodeRegistration(node_id=node))
    world.submit()
    world.claim("busy")
    world.time.advance(8 * 86_400)
    world.manager.node_heartbeat("heard", beat())
    world.manager.register_node(NodeRegistration(node_id="new"))
    before = world.time.utc_now() - 7 * DAY
    assert world.manager.forget_nodes(before, 7 * 86_400) == 1
    assert [node.node_id for node in world.manager.nodes().items] == ["busy", "heard", "new"]
    assert world.manager.claim(ClaimRequest(node_id="idle")) is None


@pytest.mark.parametrize("order", [NodeOrder.CORDON, NodeOrder.DRAIN])
def test_what_an_operator_told_a_silent_node_is_not_forgotten(
    world: World, order: NodeOrder
) -> None:
    """It is back after months, and still takes no task."""
    world.manager.register_node(NodeRegistration(node_id="closed"))
    world.manager.order_node("closed", order)
    world.submit()
    world.time.advance(90 * 86_400)
    assert world.manager.forget_nodes(world.time.utc_now() - 7 * DAY, 7 * 86_400) == 0
    world.manager.register_node(NodeRegistration(node_id="closed"))
    assert world.manager.claim(ClaimRequest(node_id="closed")) is None
    world.manager.order_node("closed", NodeOrder.UNCORDON)
    assert world.manager.claim(ClaimRequest(node_id="closed")) is not None


def beat() -> Any:
    from flashruntime.protocol.nodes import NodeHeartbeat

    return NodeHeartbeat()
