"""Completing, failing and the objects that results consist of."""

from typing import Any

import pytest

from flashruntime.errors import Conflict, InvalidInput, NotFound, Superseded
from flashruntime.leases.transitions import MAX_LOSS_RUN
from flashruntime.protocol.failures import EndedBy, Evidence
from flashruntime.protocol.jobs import JobState
from flashruntime.protocol.tasks import CompleteRequest, FailRequest, OutputFile, TaskState

A, B = "a" * 64, "b" * 64


def test_the_first_result_is_the_tasks_result(world: Any) -> None:
    world.submit(required=("model.bin",))
    lease = world.claim()
    world.beat(lease, step=40)
    output = world.upload(lease)
    request = CompleteRequest(outputs=[output], metrics={"acc": 0.9}, resumed_from=20)
    assert world.manager.complete(lease.lease_id, request).accepted
    task = world.task()
    assert (task.state, task.metrics, task.resumed_from) == (TaskState.COMPLETED, {"acc": 0.9}, 20)
    assert task.outputs == [output]
    accepted = next(e for e in world.manager.events(None, 0, 99).items if "COMMIT" in e.type.value)
    assert accepted.data["outputs"] == [output.model_dump()]
    assert (accepted.data["node_id"], accepted.data["attempt_number"]) == ("w1", 1)
    assert accepted.data["resumed_from"] == 20


def test_the_winner_gets_the_same_answer_again(world: Any) -> None:
    world.submit()
    lease = world.claim()
    output = world.upload(lease)
    first = world.complete(lease, output)
    world.restart()
    assert world.complete(lease, output) == first
    world.beat(lease)
    assert world.count("TASK_COMMIT_ACCEPTED") == 1
    with pytest.raises(Conflict, match="other outputs"):
        world.complete(lease)


def test_a_single_output_is_named_by_its_digest(world: Any) -> None:
    world.submit()
    lease = world.claim()
    world.manager.put_object(lease.commit_key, A, 3, lease.lease_id)
    request = CompleteRequest(output_sha256=A.upper())
    assert world.manager.complete(lease.lease_id, request).accepted
    assert world.manager.object(lease.commit_key).accepted


@pytest.mark.parametrize("case", ["absent", "digest", "foreign", "required"])
def test_an_output_that_is_not_as_stated_leaves_the_lease_as_it_was(world: Any, case: str) -> None:
    world.submit(required=("model.bin",), tasks=2)
    lease, other = world.claim(), world.claim("w2")
    output = OutputFile(path="model.bin", key=f"{lease.output_prefix}/model.bin", sha256=A)
    if case == "digest":
        world.upload(lease, letter="b")
    elif case == "foreign":
        output = world.upload(other)
    outputs = [] if case == "required" else [output]
    text = {"absent": "upload", "digest": "sha256", "foreign": "outside", "required": "required"}
    with pytest.raises(Conflict, match=text[case]):
        world.complete(lease, *outputs)
    assert world.task().state is TaskState.LEASED
    assert world.complete(lease, world.upload(lease)).accepted


def test_an_output_is_named_once(world: Any) -> None:
    world.submit()
    lease = world.claim()
    output = world.upload(lease)
    with pytest.raises(InvalidInput, match="once"):
        world.complete(lease, output, output)


def test_a_late_result_that_nobody_contests_is_accepted(world: Any) -> None:
    world.submit()
    lease = world.claim()
    world.lapse()
    assert world.complete(lease).accepted
    assert world.idle()


def test_a_superseded_result_is_not_accepted(world: Any) -> None:
    world.submit()
    zombie = world.claim("w1")
    stale = world.upload(zombie)
    world.lapse()
    heir = world.claim("w2")
    answer = world.complete(zombie, stale)
    assert (answer.accepted, "superseded" in answer.detail.lower()) == (False, True)
    assert world.complete(zombie, stale) == answer
    assert world.complete(heir).accepted
    assert not world.complete(zombie, stale).accepted
    assert world.count("TASK_COMMIT_REJECTED") == 1
    assert world.count("TASK_COMMIT_ACCEPTED") == 1
    assert world.task().outputs == []
    assert not world.manager.object(stale.key).accepted


def test_a_failed_attempt_is_retried_after_its_wait(world: Any, policies: Any) -> None:
    world.submit()
    lease = world.claim()
    answer = world.fail(lease, policies.retry(backoff_s=4.0))
    assert answer.task_state is TaskState.PENDING
    assert world.task().errors == 1
    assert world.idle()
    world.time.advance(4.1)
    assert world.claim().attempt_number == 2


def test_a_failure_leaves_its_evidence_and_the_decision(world: Any, policies: Any) -> None:
    world.submit()
    lease = world.claim("w9")
    evidence = Evidence(
        ended_by=EndedBy.EXIT, exit_code=3, log_tail="x" * 10**6 + "last words", step=4
    )
    request = FailRequest(reason="exit 3", evidence=evidence)
    world.manager.fail(lease.lease_id, request, policies.retry())
    failed, classified, selected, requeued = world.manager.events("job-1", 4, 9).items
    kinds = [event.type.value for event in (failed, classified, selected, requeued)]
    assert kinds == [
        "TASK_ATTEMPT_FAILED",
        "FAILURE_CLASSIFIED",
        "RECOVERY_ACTION_SELECTED",
        "TASK_REQUEUED",
    ]
    log_tail = failed.data["evidence"]["log_tail"]
    assert log_tail.endswith("last words")
    assert len(log_tail) < 20_000
    assert (failed.data["node_id"], failed.data["reason"]) == ("w9", "exit 3")
    for event in (classified, selected):
        assert event.data["failure_class"] == "unknown"
        assert event.data["policy_version"] == "test"
        assert event.data["evidence"]["exit_code"] == 3
    assert selected.data["action"] == "retry_task"


def test_a_repeated_failure_report_gives_the_first_decision(world: Any, policies: Any) -> None:
    world.submit()
    lease = world.claim()
    first = world.fail(lease, policies.retry())
    world.restart()
    assert world.fail(lease, policies.stop()) == first
    world.time.advance(1)
    world.claim("w2")
    assert world.fail(lease, policies.stop()) == first
    assert world.count("TASK_ATTEMPT_FAILED") == 1


def test_a_failed_lease_is_fenced(world: Any, policies: Any) -> None:
    world.submit()
    lease = world.claim()
    world.fail(lease, policies.retry())
    with pytest.raises(Superseded):
        world.beat(lease)
    assert not world.complete(lease).accepted


def test_a_late_failure_that_nobody_contests_counts(world: Any, policies: Any) -> None:
    world.submit()
    lease = world.claim()
    world.lapse()
    world.fail(lease, policies.retry())
    assert (world.task().errors, world.task().losses) == (1, 0)


def test_a_superseded_failure_is_refused(world: Any, policies: Any) -> None:
    world.submit()
    lease = world.claim()
    world.lapse()
    world.claim("w2")
    with pytest.raises(Superseded):
        world.fail(lease, policies.stop())
    assert world.manager.job("job-1").state is JobState.RUNNING


def test_a_completed_attempt_cannot_fail(world: Any, policies: Any) -> None:
    world.submit()
    lease = world.claim()
    world.complete(lease)
    with pytest.raises(Conflict, match="completed"):
        world.fail(lease, policies.stop())


def test_one_task_given_up_fails_its_job_fast(world: Any, policies: Any) -> None:
    world.submit(tasks=4)
    done, leased, broken = world.claim(), world.claim(), world.claim()
    world.complete(done)
    answer = world.fail(broken, policies.stop(exhausted=True))
    assert answer.task_state is TaskState.FAILED
    job = world.manager.job("job-1")
    assert job.state is JobState.FAILED
    assert "job-1-00002" in (job.reason or "")
    assert (job.tasks["COMPLETED"], job.tasks["FAILED"], job.tasks["CANCELLED"]) == (1, 1, 2)
    assert world.kinds()[-2:] == ["TASK_EXHAUSTED", "JOB_FAILED"]
    with pytest.raises(Superseded):
        world.beat(leased)
    assert world.idle()


def test_a_preemption_spends_no_error(world: Any, policies: Any) -> None:
    world.submit()
    world.fail(world.claim(), policies.retry(counts=False))
    assert (world.task().errors, world.task().losses) == (0, 1)


def test_the_policy_is_told_when_a_failure_repeats_at_a_step(world: Any, policies: Any) -> None:
    world.submit()
    steps = [5, 5, 6, None, None]
    answers = []
    for step in steps:
        world.time.advance(10)
        answers.append(world.fail(world.claim(), policies.retry(), step=step))
    repeated = ["repeated=True" in answer.decision.reason for answer in answers]
    assert repeated == [False, True, False, False, False]


def test_a_failure_without_evidence_is_the_workers_word(world: Any, policies: Any) -> None:
    seen = []

    def decide(evidence: Evidence, history: Any, task: str, node: str) -> Any:
        seen.append((evidence, history.errors, history.max_errors))
        return policies.retry()(evidence, history, task, node)

    world.submit(max_attempts=7)
    lease = world.claim()
    world.manager.fail(lease.lease_id, FailRequest(reason="hm"), decide)
    assert seen == [(Evidence(ended_by=EndedBy.WORKER_ERROR, message="hm"), 0, 7)]


def test_a_node_that_failed_a_task_is_not_its_next_claimer(world: Any, policies: Any) -> None:
    world.submit()
    assert world.idle("w2") is False
    world.manager.cancel_job("job-1")
    world.submit(job_id="job-2")
    world.fail(world.claim("w1"), policies.retry())
    world.time.advance(0.1)
    assert world.idle("w1")
    assert world.claim("w2").attempt_number == 2


def test_a_node_may_retry_its_own_failure_when_nobody_else_does(world: Any, policies: Any) -> None:
    world.submit(job_id="job-1", tasks=2)
    world.fail(world.claim("w1"), policies.retry())
    world.time.advance(0.1)
    assert world.claim("w1").attempt_number == 2
    world.claim("w2")
    world.manager.cancel_job("job-1")
    world.submit(job_id="job-2")
    world.fail(world.claim("w1"), policies.retry())
    world.time.advance(0.1)
    assert world.idle("w1")
    world.time.advance(5.0)
    assert world.claim("w1").attempt_number == 2


def test_an_object_can_change_until_it_is_accepted(world: Any) -> None:
    world.submit()
    lease = world.claim()
    world.upload(lease, letter="b")
    output = world.upload(lease, letter="a")
    world.complete(lease, output)
    assert world.manager.put_object(output.key, A, 3, None).accepted
    with pytest.raises(Conflict, match="cannot change"):
        world.manager.put_object(output.key, B, 3, None)
    assert world.manager.object(output.key).sha256 == A


def test_the_outputs_of_a_completed_lease_are_closed(world: Any) -> None:
    world.submit(tasks=2)
    lease = world.claim()
    world.complete(lease)
    with pytest.raises(Conflict, match="closed"):
        world.upload(lease)


def test_only_its_holder_writes_below_a_leases_prefix(world: Any) -> None:
    world.submit()
    zombie = world.claim("w1")
    world.lapse()
    heir = world.claim("w2")
    for lease_id in (None, zombie.lease_id, heir.lease_id):
        with pytest.raises(Superseded):
            world.manager.put_object(f"{zombie.output_prefix}/x", A, 1, lease_id)
    with pytest.raises(NotFound):
        world.manager.object(f"{zombie.output_prefix}/x")
    world.upload(heir)


def test_another_lease_cannot_write_below_a_leases_prefix(world: Any) -> None:
    world.submit(tasks=2)
    mine, other = world.claim("w1"), world.claim("w2")
    with pytest.raises(Conflict, match="own"):
        world.manager.put_object(f"{mine.output_prefix}/x", A, 1, other.lease_id)


@pytest.mark.parametrize(("first", "second"), [("a/b", "a"), ("a", "a/b"), ("x/y/z/w", "x/y")])
def test_no_key_is_file_and_folder_at_once(world: Any, first: str, second: str) -> None:
    world.manager.put_object(first, A, 1, None)
    with pytest.raises(Conflict, match=first):
        world.manager.put_object(second, A, 1, None)
    world.manager.put_object("a-b", A, 1, None)
    world.manager.put_object("a0", A, 1, None)


@pytest.mark.parametrize(
    "key",
    ["", "/a", "a//b", "../a", "a/./b", "a\0", "a\\b", "a%2fb", "e\u0301", "s" * 256, "\ud800"],
)
def test_unsafe_keys_are_refused(world: Any, key: str) -> None:
    with pytest.raises(InvalidInput):
        world.manager.put_object(key, A, 1, None)


def test_an_unknown_object_is_not_found(world: Any) -> None:
    with pytest.raises(NotFound, match="no artifact"):
        world.manager.object("a\ud800")


def test_a_job_lists_its_accepted_objects_only(world: Any) -> None:
    world.submit()
    lease = world.claim()
    output = world.upload(lease)
    world.upload(lease, path="scratch")
    world.manager.put_object("source/train.py", B, 1, None)
    world.complete(lease, output)
    (item,) = world.manager.job_objects("job-1").items
    assert (item.object_key, item.path, item.task_id) == (output.key, "model.bin", "job-1-00000")


def test_a_step_that_only_the_last_call_states_counts_as_progress(
    world: Any, policies: Any
) -> None:
    """A task that is preempted between two heartbeats again and again still moves on."""
    world.submit()
    for step in range(2 * MAX_LOSS_RUN):
        world.fail(world.claim(), policies.retry(counts=False), step=step)
        world.time.advance(1)
    lease = world.claim()
    assert world.task().losses == 2 * MAX_LOSS_RUN
    world.manager.complete(lease.lease_id, CompleteRequest(outputs=[], step=777))
    assert world.task().step == 777
