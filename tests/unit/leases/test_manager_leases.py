"""Claiming, renewing and losing leases."""

from datetime import timedelta
from typing import Any

import pytest

from flashruntime.errors import InvalidInput, NotFound, Superseded
from flashruntime.leases import transitions
from flashruntime.protocol.tasks import ClaimRequest, CompleteRequest, HeartbeatRequest, TaskState


def test_tasks_are_given_out_in_order_each_once(world: Any) -> None:
    world.submit(tasks=2, job_id="job-1")
    world.submit(tasks=1, job_id="job-2")
    claimed = [world.claim(f"w{number}") for number in range(3)]
    assert [lease.task_id for lease in claimed] == ["job-1-00000", "job-1-00001", "job-2-00000"]
    assert world.idle()


def test_a_claim_can_name_its_job(world: Any) -> None:
    world.submit(job_id="job-1")
    world.submit(job_id="job-2")
    assert world.claim(job_id="job-2").job_id == "job-2"
    assert world.manager.claim(ClaimRequest(node_id="w1", job_id="job-2")) is None
    with pytest.raises(NotFound, match="job-x"):
        world.claim(job_id="job-x")


def test_a_lease_has_keys_of_its_own(world: Any) -> None:
    world.submit()
    first = world.claim()
    world.lapse()
    second = world.claim("w2")
    assert (first.attempt_number, second.attempt_number) == (1, 2)
    assert second.commit_key == f"{second.output_prefix}/output"
    assert first.output_prefix != second.output_prefix
    assert second.output_prefix == f"outputs/job-1/00000/{second.lease_id}"


def test_a_repeated_claim_gives_the_same_lease(world: Any) -> None:
    world.submit(tasks=2)
    first = world.claim(claim_id="c")
    assert world.claim(claim_id="c").lease_id == first.lease_id
    assert world.claim("w2", claim_id="c").lease_id != first.lease_id
    assert world.count("LEASE_CLAIMED") == 2


def test_a_repeated_claim_gives_the_same_lease_after_a_restart(world: Any) -> None:
    world.submit(tasks=2)
    first = world.claim(claim_id="c")
    world.restart()
    assert world.claim(claim_id="c").lease_id == first.lease_id


def test_a_repeated_claim_revives_a_lapsed_lease(world: Any) -> None:
    world.submit()
    first = world.claim(claim_id="c")
    world.lapse()
    assert world.claim(claim_id="c").lease_id == first.lease_id
    assert world.idle("w2")


@pytest.mark.parametrize("end", ["complete", "fail", "supersede", "cancel"])
def test_a_claim_whose_lease_has_ended_is_gone(world: Any, policies: Any, end: str) -> None:
    world.submit(tasks=2)
    lease = world.claim(claim_id="c")
    if end == "complete":
        world.complete(lease)
    elif end == "fail":
        world.fail(lease, policies.retry())
    elif end == "supersede":
        world.lapse()
        world.claim("w2")
    else:
        world.manager.cancel_job("job-1")
    with pytest.raises(Superseded, match="new claim_id"):
        world.claim(claim_id="c")


def test_a_lease_lives_while_its_holder_beats(world: Any) -> None:
    world.submit()
    lease = world.claim()
    for _ in range(5):
        world.time.advance(9.0)
        world.beat(lease)
        assert world.manager.sweep() == 0
    assert world.idle("w2")
    assert world.count("LEASE_RENEWED") == 0


def test_a_silent_lease_lapses_and_its_task_is_claimable(world: Any) -> None:
    world.submit()
    first = world.claim()
    assert world.lapse() == 1
    assert world.task().state is TaskState.PENDING
    assert world.manager.job("job-1").tasks["PENDING"] == 1
    second = world.claim("w2")
    assert (second.task_id, second.attempt_number) == (first.task_id, 2)
    assert world.task().losses == 1
    assert world.task().errors == 0
    assert world.kinds("job-1")[-3:] == ["LEASE_EXPIRED", "TASK_REQUEUED", "LEASE_CLAIMED"]


def test_a_lease_lapses_only_once(world: Any) -> None:
    world.submit()
    world.claim()
    world.lapse()
    assert world.manager.sweep() == 0
    assert world.count("LEASE_EXPIRED") == 1


def test_many_leases_lapse_in_one_sweep(world: Any) -> None:
    world.submit(tasks=450)
    for _ in range(450):
        world.claim()
    assert world.lapse() == 450


def test_a_late_heartbeat_that_nobody_contests_revives_the_lease(world: Any) -> None:
    world.submit()
    lease = world.claim()
    world.lapse()
    world.beat(lease)
    assert world.task().state is TaskState.LEASED
    assert world.idle("w2")
    page = world.manager.events("job-1", 0, 100)
    assert page.items[-1].type.value == "LEASE_RENEWED"
    assert page.items[-1].data["revived"] is True


def test_a_superseded_holder_is_refused_for_ever_and_changes_nothing(world: Any) -> None:
    world.submit()
    zombie = world.claim("w1")
    world.lapse()
    heir = world.claim("w2")
    world.beat(heir, step=7)
    before = world.task()
    for _ in range(3):
        with pytest.raises(Superseded, match="attempt 2"):
            world.beat(zombie, step=99)
    assert world.task() == before
    assert world.count("LEASE_REFUSED") == 1
    world.lapse()
    with pytest.raises(Superseded):
        world.beat(zombie)


def test_each_refused_call_is_recorded_with_its_name(world: Any) -> None:
    world.submit()
    zombie = world.claim("w1")
    world.lapse()
    world.claim("w2")
    verbs = {"logs": "write logs", "artifact": "upload"}
    for call in ("logs", "logs", "artifact"):
        with pytest.raises(Superseded, match=f"may not {verbs[call]}: it is"):
            world.manager.check_holder(zombie.lease_id, call)
    refused = [
        (event.data["call"], event.lease_id, event.data["node_id"])
        for event in world.manager.events("job-1", 0, 100).items
        if event.type.value == "LEASE_REFUSED"
    ]
    assert refused == [("logs", zombie.lease_id, "w1"), ("artifact", zombie.lease_id, "w1")]


def test_a_holder_is_told_which_task_it_holds(world: Any) -> None:
    world.submit()
    lease = world.claim()
    held = world.manager.check_holder(lease.lease_id, "logs")
    assert (held.task_id, held.attempt_number) == (lease.task_id, 1)


@pytest.mark.parametrize("call", ["heartbeat", "complete", "fail", "check_holder"])
def test_an_unknown_lease_is_not_found(world: Any, policies: Any, call: str) -> None:
    arguments = {
        "heartbeat": (HeartbeatRequest(),),
        "complete": (CompleteRequest(),),
        "fail": (_fail_request(), policies.retry()),
        "check_holder": ("logs",),
    }
    with pytest.raises(NotFound, match="no lease"):
        getattr(world.manager, call)("lease-unknown\ud800", *arguments[call])


def _fail_request() -> Any:
    from flashruntime.protocol.tasks import FailRequest

    return FailRequest(reason="x")


def test_step_and_metrics_of_a_heartbeat_are_kept(world: Any) -> None:
    world.submit()
    lease = world.claim()
    metrics = {"loss": 0.5, "big": 10**30, "text": "é"}
    world.manager.heartbeat(lease.lease_id, HeartbeatRequest(step=2**53, metrics=metrics))
    world.beat(lease)
    world.restart()
    assert (world.task().step, world.task().metrics) == (2**53, metrics)


def test_metrics_that_are_not_strict_json_are_refused(world: Any) -> None:
    world.submit()
    lease = world.claim()
    bad = HeartbeatRequest.model_construct(step=1, metrics={"loss": float("nan")})
    with pytest.raises(InvalidInput, match="metrics"):
        world.manager.heartbeat(lease.lease_id, bad)


def test_broken_unicode_never_breaks_a_write(world: Any) -> None:
    world.submit()
    lease = world.claim()
    bad = HeartbeatRequest.model_construct(step=1, metrics={"a\ud800": ["\udfff", {"k": "\ud83d"}]})
    world.manager.heartbeat(lease.lease_id, bad)
    assert world.task().metrics == {"a\ufffd": ["\ufffd", {"k": "\ufffd"}]}


def test_wall_clock_jumps_change_no_lease(world: Any) -> None:
    world.submit()
    lease = world.claim()
    for hours in (2, -4):
        world.time.wall += timedelta(hours=hours)
        assert world.manager.sweep() == 0
        world.beat(lease)
    assert world.complete(lease).accepted


def test_a_restart_gives_live_leases_their_full_time_again(world: Any) -> None:
    world.submit()
    lease = world.claim()
    world.time.advance(9.9)
    world.restart()
    world.time.advance(9.9)
    assert world.manager.sweep() == 0
    world.beat(lease)
    world.time.advance(10.1)
    assert world.manager.sweep() == 1


def test_a_reboot_with_a_smaller_monotonic_clock_loses_no_lease(world: Any, policies: Any) -> None:
    world.submit(tasks=2)
    lease = world.claim()
    world.fail(world.claim(), policies.retry(backoff_s=5.0))
    world.restart(mono_ns=1_000)
    world.time.advance(5.5)
    world.beat(lease)
    assert world.claim().task_id == "job-1-00001"


def test_a_lapsed_lease_still_counts_after_a_restart(world: Any) -> None:
    world.submit()
    lease = world.claim()
    world.lapse()
    world.restart()
    assert world.complete(lease).accepted


def test_a_session_that_ends_frees_its_leases_without_fencing(world: Any) -> None:
    world.submit(tasks=2)
    mine = world.claim("w1")
    other = world.claim("w2")
    assert world.manager.lapse_node("w1", None) == 1
    world.beat(mine)
    world.beat(other)
    assert world.manager.lapse_node("w1", "session-of-somebody") == 0
    assert world.manager.lapse_node("w1", None) == 1
    world.claim("w3")
    with pytest.raises(Superseded):
        world.beat(mine)


def test_lost_attempts_have_a_cap_of_their_own(world: Any) -> None:
    world.submit()
    for _ in range(transitions.MAX_LOSS_RUN):
        world.claim()
        world.lapse()
    assert world.idle()
    job = world.manager.job("job-1")
    assert job.state.value == "FAILED"
    assert "lost" in (job.reason or "")
    assert world.task().errors == 0
    assert world.kinds()[-2:] == ["TASK_EXHAUSTED", "JOB_FAILED"]


def test_progress_renews_the_budget_of_losses(world: Any) -> None:
    world.submit()
    for number in range(transitions.MAX_LOSS_RUN + 20):
        world.beat(world.claim(), step=number)
        world.lapse()
    assert not world.idle()
    assert world.task().losses == transitions.MAX_LOSS_RUN + 20


def test_the_next_instant_to_look_is_known(world: Any, policies: Any) -> None:
    assert world.manager.next_due_ns() is None
    world.submit(tasks=2)
    world.claim()
    assert world.manager.next_due_ns() == world.time.mono_ns + 10 * 10**9
    world.fail(world.claim(), policies.retry(backoff_s=2.0))
    assert world.manager.next_due_ns() == world.time.mono_ns + 2 * 10**9
    world.time.advance(3)
    assert world.manager.next_due_ns() == world.time.mono_ns + 7 * 10**9


def test_without_the_fencing_decision_a_zombie_would_win(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every call depends on `transitions.holds` alone."""
    world.submit()
    zombie = world.claim("w1")
    world.lapse()
    heir = world.claim("w2")
    monkeypatch.setattr(transitions, "holds", lambda task, lease_id: True)
    world.beat(zombie, step=3)
    world.manager.check_holder(zombie.lease_id, "logs")
    assert world.complete(heir).accepted
    assert world.complete(zombie).accepted
    assert world.count("TASK_COMMIT_ACCEPTED") == 2
