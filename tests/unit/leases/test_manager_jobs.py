"""Submitting, reading and cancelling jobs."""

from typing import Any

import pytest

from flashruntime.errors import Conflict, InvalidInput, NotFound, Superseded
from flashruntime.leases.record import Submission
from flashruntime.protocol.jobs import JobState
from flashruntime.protocol.tasks import TaskPayload, TaskState


def test_a_job_appears_with_all_its_tasks(world: Any) -> None:
    job = world.submit(tasks=3)
    assert (job.state, job.tasks["PENDING"]) == (JobState.PENDING, 3)
    assert [task.task_id for task in world.manager.tasks("job-1", None, 10).items] == [
        "job-1-00000",
        "job-1-00001",
        "job-1-00002",
    ]
    assert world.kinds("job-1") == ["JOB_ACCEPTED", *["TASK_CREATED"] * 3]


def test_a_job_that_cannot_be_stored_whole_leaves_nothing(world: Any) -> None:
    class Breaks(tuple[TaskPayload, ...]):
        def __iter__(self) -> Any:
            yield self[0]
            raise OSError("in the middle")

    good = world.submit(job_id="job-good")
    payloads = Breaks((TaskPayload(type="command"),) * 2)
    with pytest.raises(OSError, match="middle"):
        world.manager.submit(Submission("job-bad", good.spec, payloads, 10.0, "key", "d"))
    with pytest.raises(NotFound):
        world.manager.job("job-bad")
    assert world.submit(job_id="job-next", key="key").job_id == "job-next"


def test_a_repeated_submission_gives_the_first_job(world: Any) -> None:
    first = world.submit(job_id="job-1", key="k")
    assert world.submit(job_id="job-2", key="k") == first
    assert len(world.manager.jobs(None, 10).items) == 1


def test_a_repeated_submission_survives_a_restart(world: Any) -> None:
    first = world.submit(job_id="job-1", key="k")
    world.restart()
    assert world.submit(job_id="job-2", key="k") == first


def test_an_idempotency_key_belongs_to_one_request(world: Any) -> None:
    world.submit(key="k", digest="d")
    with pytest.raises(Conflict, match="new key"):
        world.submit(job_id="job-2", key="k", digest="other")


def test_a_job_id_is_used_once(world: Any) -> None:
    world.submit()
    with pytest.raises(Conflict, match="exists"):
        world.submit()


def test_a_job_without_tasks_is_refused(world: Any) -> None:
    with pytest.raises(InvalidInput, match="no task"):
        world.submit(tasks=0)


def test_an_output_prefix_without_room_for_keys_is_refused(world: Any) -> None:
    """Otherwise no task of the job could ever be claimed."""
    good = world.submit(job_id="job-good").spec
    artifacts = good.spec.artifacts.model_copy(update={"outputPrefix": "p/" * 500 + "p"})
    section = good.spec.model_copy(update={"artifacts": artifacts})
    bad = good.model_copy(update={"spec": section})
    payloads = (TaskPayload(type="command"),)
    with pytest.raises(InvalidInput, match="outputPrefix"):
        world.manager.submit(Submission("job-bad", bad, payloads, 10.0, None, "d"))


def test_a_large_job_is_stored_whole(world: Any) -> None:
    world.submit(tasks=2_500)
    assert world.manager.tasks("job-1", 2_497, 10).items[-1].task_id == "job-1-02499"
    assert world.count("TASK_CREATED") == 2_500


def test_jobs_are_paged_newest_first(world: Any) -> None:
    for number in range(5):
        world.submit(job_id=f"job-{number}")
    first = world.manager.jobs(None, 2)
    assert first.items[0].spec is None, "of 100 jobs with 100,000 parameters each"
    assert world.manager.job(first.items[0].job_id).spec is not None
    second = world.manager.jobs(first.next, 2)
    last = world.manager.jobs(second.next, 2)
    ids = [job.job_id for page in (first, second, last) for job in page.items]
    assert ids == ["job-4", "job-3", "job-2", "job-1", "job-0"]
    assert last.next is None


def test_tasks_are_paged_in_order(world: Any) -> None:
    world.submit(tasks=5)
    first = world.manager.tasks("job-1", None, 3)
    second = world.manager.tasks("job-1", first.next, 3)
    assert [task.index for task in (*first.items, *second.items)] == [0, 1, 2, 3, 4]
    assert (first.next, second.next) == (2, None)


def test_events_can_be_read_on_from_an_id(world: Any) -> None:
    world.submit(tasks=2)
    page = world.manager.events("job-1", 0, 2)
    rest = world.manager.events("job-1", page.last_id, 10)
    assert [event.type.value for event in rest.items] == ["TASK_CREATED"]
    assert world.manager.events("job-1", rest.last_id, 10).last_id == rest.last_id


@pytest.mark.parametrize("call", ["job", "cancel_job", "job_objects"])
def test_an_unknown_job_is_not_found(world: Any, call: str) -> None:
    with pytest.raises(NotFound, match="job-x"):
        getattr(world.manager, call)("job-x")


def test_a_page_has_at_least_one_item(world: Any) -> None:
    with pytest.raises(InvalidInput, match="at least 1"):
        world.manager.jobs(None, 0)


def test_cancelling_ends_tasks_and_fences_leases(world: Any) -> None:
    world.submit(tasks=2)
    lease = world.claim()
    job = world.manager.cancel_job("job-1")
    assert (job.state, job.tasks["CANCELLED"], job.tasks["LEASED"]) == (JobState.CANCELLED, 2, 0)
    assert world.task().state is TaskState.CANCELLED
    with pytest.raises(Superseded, match="CANCELLED"):
        world.beat(lease)
    assert not world.complete(lease).accepted
    assert world.idle()
    assert world.lapse() == 0


def test_cancelling_again_changes_nothing(world: Any) -> None:
    world.submit()
    first = world.manager.cancel_job("job-1")
    assert world.manager.cancel_job("job-1") == first
    assert world.count("JOB_CANCELLED") == 1


def test_a_finished_job_is_not_cancelled(world: Any) -> None:
    world.submit()
    world.complete(world.claim())
    assert world.manager.cancel_job("job-1").state is JobState.SUCCEEDED


def test_a_job_runs_from_its_first_claim_and_succeeds_with_its_last_task(world: Any) -> None:
    world.submit(tasks=2)
    first = world.claim()
    assert world.manager.job("job-1").state is JobState.RUNNING
    world.complete(first)
    assert world.manager.job("job-1").state is JobState.RUNNING
    world.complete(world.claim())
    job = world.manager.job("job-1")
    assert (job.state, job.tasks["COMPLETED"]) == (JobState.SUCCEEDED, 2)
    assert job.finished_at is not None
    assert world.kinds("job-1")[-2:] == ["TASK_COMMIT_ACCEPTED", "JOB_SUCCEEDED"]
