"""What refers to bytes, whom damage concerns, and what a job may store, on each store."""

from typing import Any

import pytest

from flashruntime.errors import Conflict, NotFound, QuotaExceeded
from flashruntime.leases.record import Submission
from flashruntime.protocol.jobs import JobSpec
from flashruntime.protocol.tasks import TaskPayload

World = Any
A, B, C = ("a" * 64, "b" * 64, "c" * 64)


def with_input(world: World, job_id: str, key: str, sha256: str) -> None:
    raw = {
        "apiVersion": "flashml.dev/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "j"},
        "spec": {
            "workload": {
                "type": "command",
                "parameters": {
                    "command": ["true"],
                    "inputs": [{"path": "in", "key": key, "sha256": sha256}],
                },
            }
        },
    }
    spec = JobSpec.model_validate(raw)
    payloads = (TaskPayload(type="command"),)
    world.manager.submit(Submission(job_id, spec, payloads, 30.0, None, "d"))


def events(world: World, kind: str) -> list[tuple[str | None, str | None, object]]:
    found = world.manager.events(None, 0, 1000).items
    return [(e.job_id, e.task_id, e.data["key"]) for e in found if e.type.value == kind]


def test_bytes_that_an_object_consists_of_are_referred_to(world: World) -> None:
    world.manager.put_object("x", A, 1, None)
    world.manager.put_object("y", A, 1, None)
    assert world.manager.unreferenced([A, B]) == [B]
    world.manager.put_object("x", B, 1, None)
    assert world.manager.unreferenced([A, B]) == []
    world.manager.put_object("y", B, 1, None)
    assert world.manager.unreferenced([A, B]) == [A]


def test_uploaded_inputs_go_with_the_last_job_that_takes_them(world: World) -> None:
    key = f"inputs/{A}"
    world.manager.put_object(key, A, 1, None)
    world.manager.put_object("data/mine", B, 1, None)
    for job_id in ("job-1", "job-2"):
        with_input(world, job_id, key, A)
    for job_id in ("job-1", "job-2"):
        assert world.manager.unreferenced([A, B], drop_inputs=True) == []
        world.manager.cancel_job(job_id)
        world.manager.delete_job(job_id)
    assert world.manager.unreferenced([A, B]) == []
    assert world.manager.unreferenced([A, B], drop_inputs=True) == [A]


def test_damage_is_told_once_for_each_thing_that_it_concerns(world: World) -> None:
    world.submit()
    lease = world.claim()
    output = world.upload(lease)
    world.complete(lease, output)
    world.submit(job_id="job-2")
    other = world.claim(job_id="job-2")
    spare = world.upload(other, "spare")
    world.manager.put_object("inputs/in", A, 3, None)
    with_input(world, "job-3", "inputs/in", A)
    world.manager.put_object("nobody's", A, 3, None)
    concerns = world.manager.note_damage(A, "rot")
    expected = {
        ("job-1", lease.task_id, output.key),
        ("job-2", other.task_id, spare.key),
        ("job-3", None, "inputs/in"),
        (None, None, "nobody's"),
    }
    assert {(each.job_id, each.task_id, each.key) for each in concerns} == expected
    assert set(events(world, "ARTIFACT_CORRUPT")) == expected
    assert world.manager.note_damage(A, "rot") == []
    assert len(events(world, "ARTIFACT_CORRUPT")) == 4
    assert world.manager.damages() == [A]
    assert [item.damaged for item in world.manager.job_objects("job-1").items] == ["rot"]
    world.restart()
    assert world.manager.object(output.key).damaged == "rot"


def test_damage_of_bytes_that_nobody_needs_is_not_recorded(world: World) -> None:
    assert world.manager.note_damage(A, "rot") == []
    assert (world.manager.damages(), events(world, "ARTIFACT_CORRUPT")) == ([], [])
    world.manager.put_object("x", A, 1, None)
    world.manager.note_damage(A, "rot")
    world.manager.put_object("x", B, 1, None)
    assert world.manager.damages() == []
    assert world.manager.object("x").damaged is None


def test_an_upload_of_the_same_bytes_heals_them(world: World) -> None:
    world.submit()
    lease = world.claim()
    output = world.upload(lease)
    world.complete(lease, output)
    assert world.manager.damages() == []
    world.manager.note_damage(A, "rot")
    world.restart()
    assert world.manager.put_object(output.key, A, 3, None).damaged is None
    assert world.manager.object(output.key).damaged is None
    assert [key for *_, key in events(world, "ARTIFACT_RESTORED")] == [output.key]
    world.manager.put_object(output.key, A, 3, None)
    assert len(events(world, "ARTIFACT_RESTORED")) == 1


def test_l2_a_result_whose_bytes_are_damaged_is_not_accepted(world: World) -> None:
    world.submit()
    lease = world.claim()
    output = world.upload(lease)
    world.manager.note_damage(A, "rot")
    with pytest.raises(Conflict, match=r"damaged \(rot\): upload it again"):
        world.complete(lease, output)
    assert world.complete(lease, world.upload(lease)).accepted


def test_a_job_stores_as_much_as_it_may_and_no_more(world: World) -> None:
    world.manager.max_job_bytes = 10
    world.submit()
    lease, prefix = (lease := world.claim()), lease.output_prefix
    put = world.manager.put_object
    put(f"{prefix}/a", A, 6, None)
    put(f"{prefix}/a", A, 6, None)
    with pytest.raises(QuotaExceeded, match=r"job-1 stores 6 bytes.*may store 10.*FLASHML_MAX_JOB"):
        put(f"{prefix}/b", B, 5, None)
    put(f"{prefix}/b", B, 4, None)
    put(f"{prefix}/a", C, 2, None)
    put(f"{prefix}/c", A, 4, lease.lease_id)
    room = world.manager.admit(f"{prefix}/a")
    room.check(2)
    with pytest.raises(QuotaExceeded):
        room.check(3)
    put("not/of/a/job", A, 1_000, None)
    assert world.manager.admit("not/of/a/job") is None
    world.submit(job_id="job-2")
    other = world.claim(job_id="job-2")
    put(f"{other.output_prefix}/a", A, 10, None)


def test_without_a_bound_a_job_stores_what_it_will(world: World) -> None:
    world.submit()
    lease = world.claim()
    assert world.manager.admit(f"{lease.output_prefix}/a") is None
    world.manager.put_object(f"{lease.output_prefix}/a", A, 10**15, None)


def test_an_output_that_another_job_takes_as_input_outlives_its_own_job(world: World) -> None:
    world.submit()
    lease = world.claim()
    output, other = world.upload(lease), world.upload(lease, "other", "b")
    assert world.complete(lease, output, other).accepted
    with_input(world, "job-2", output.key, A)

    def purged() -> list[str]:
        freed: list[str] = []
        while (step := world.manager.purge(1)) is not None:
            freed += step.freed
            if step.done:
                world.manager.end_removal(step.removal)
        return freed

    world.manager.delete_job("job-1")
    assert purged() == [B]
    assert world.manager.object(output.key).sha256 == A
    world.manager.cancel_job("job-2")
    world.manager.delete_job("job-2")
    assert purged() == [A]
    with pytest.raises(NotFound):
        world.manager.object(output.key)
