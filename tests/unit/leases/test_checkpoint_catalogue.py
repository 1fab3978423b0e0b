"""The catalogue of checkpoints on each store: fenced, in one chain, kept as long as needed."""

import hashlib
import json
import re
from typing import Any

import pytest

from flashruntime.errors import Conflict, NotFound, Superseded
from flashruntime.leases.checkpoint_rules import Offer
from flashruntime.leases.sqlite import SqliteStore
from flashruntime.protocol.checkpoints import Manifest, Part, PartSize, TakenOver, TaskName
from flashruntime.protocol.events import EventType
from flashruntime.protocol.tasks import Lease

TASK = TaskName("job-1", "0")
COMMITTED, REJECTED = EventType.CHECKPOINT_MANIFEST_COMMITTED, EventType.CHECKPOINT_REJECTED


def part(text: str) -> PartSize:
    return PartSize(sha256=hashlib.sha256(text.encode()).hexdigest(), size_bytes=len(text))


def manifest(lease: Lease, step: int, name: str = "", parts: tuple[str, ...] = ()) -> Manifest:
    made = [part(text) for text in parts or (f"{lease.lease_id}/{step}",)]
    name = name or f"ckpt-{lease.attempt_number}-{step}"
    return Manifest(
        manifest_id=name,
        job_id=lease.job_id,
        attempt_id=lease.lease_id,
        step=step,
        framework="none",
        world_size=1,
        compatible_world_sizes=[1],
        parts=[Part(key=f"p{n}", **each.model_dump()) for n, each in enumerate(made)],
        created="2026-01-01T00:00:00Z",
        checkpoint_duration_s=0.0,
        digest=hashlib.sha256(f"{name} {lease.lease_id} {step}".encode()).hexdigest(),
    )


class Catalogue:
    """A world, and the checkpoint calls of its attempts."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.freed: list[str] = []

    def commit(self, lease: Lease, step: int, took: tuple[Lease, int] | None = None, **more: Any):
        found = manifest(lease, step, **more)
        taken = took and TakenOver(step=took[1], manifest_id=manifest(*took).manifest_id)
        offer = Offer(found, found.model_dump_json(), taken)
        committed = self.world.manager.commit_checkpoint(TASK, lease.lease_id, offer)
        self.freed += committed.freed
        return committed.record

    def latest(self, *skip: str) -> int | None:
        found = self.world.manager.newest_checkpoint(TASK, skip)
        return None if found is None else found.record.step

    def steps(self) -> list[int]:
        kept = self.world.manager.checkpoints(TASK).items
        return [record.step for record in kept if record.set_aside is None]

    def events(self, kind: EventType) -> list[dict[str, Any]]:
        events = self.world.manager.events("job-1", 0, 10_000).items
        return [event.data for event in events if event.type is kind]

    def needed(self) -> set[str]:
        return set(self.world.manager.referenced_parts())


@pytest.fixture
def catalogue(world: Any) -> Catalogue:
    return Catalogue(world)


def test_l4_a_checkpoint_is_found_again_after_a_restart(catalogue: Catalogue) -> None:
    catalogue.world.submit()
    lease = catalogue.world.claim()
    catalogue.commit(lease, 10)
    catalogue.world.restart()
    found = catalogue.world.manager.newest_checkpoint(TASK, ())
    assert found.record.step == 10
    assert json.loads(found.manifest_json)["attempt_id"] == lease.lease_id
    assert [data["step"] for data in catalogue.events(COMMITTED)] == [10]


def test_a_repeated_commit_gives_the_first_answer_also_when_it_is_late(
    catalogue: Catalogue,
) -> None:
    catalogue.world.submit()
    lease = catalogue.world.claim()
    first = catalogue.commit(lease, 10)
    assert catalogue.commit(lease, 10) == first
    catalogue.world.lapse()
    catalogue.world.claim("w2")
    assert catalogue.commit(lease, 10) == first
    assert len(catalogue.events(COMMITTED)) == 1


def test_a_late_commit_that_nobody_contests_is_accepted(catalogue: Catalogue) -> None:
    """Rule 3."""
    catalogue.world.submit()
    lease = catalogue.world.claim()
    catalogue.world.lapse()
    assert catalogue.commit(lease, 10).step == 10


def test_what_a_zombie_commits_never_counts_and_is_recorded(catalogue: Catalogue) -> None:
    catalogue.world.submit()
    zombie = catalogue.world.claim()
    catalogue.commit(zombie, 10)
    catalogue.world.lapse()
    catalogue.world.claim("w2")
    for step in (20, 30):
        with pytest.raises(Superseded, match="stop this attempt"):
            catalogue.commit(zombie, step)
    with pytest.raises(Superseded):
        catalogue.world.manager.announce_parts(TASK, zombie.lease_id, [part("x")])
    with pytest.raises(Superseded):
        catalogue.world.manager.set_checkpoint_aside(TASK, zombie.lease_id, "ckpt-1-10", "no")
    assert catalogue.latest() == 10
    [rejected] = catalogue.events(REJECTED)
    assert (rejected["step"], rejected["lease_state"]) == (20, "SUPERSEDED")


def test_checkpoints_beyond_what_a_successor_took_over_leave_the_chain(
    catalogue: Catalogue,
) -> None:
    """It could not use the newest one; the older one it went on from is the chain from then on."""
    catalogue.world.submit()
    first = catalogue.world.claim()
    for step in (10, 20, 30):
        catalogue.commit(first, step)
    catalogue.world.lapse()
    second = catalogue.world.claim("w2")
    assert catalogue.latest() == 30, "a successor that has saved nothing changes nothing"
    catalogue.commit(second, 25, took=(first, 20))
    assert catalogue.steps() == [25, 20, 10]
    assert catalogue.events(COMMITTED)[-1]["left_chain"] == ["ckpt-1-30"]
    state = catalogue.world.manager.checkpoint_state(TASK)
    assert [(s.attempt_number, s.takes_over and s.takes_over.step) for s in state.lineage] == [
        (1, None),
        (2, 20),
    ]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"job_id": "job-2"}, "not of lease"),
        ({"attempt_id": "lease-x"}, "not of lease"),
        ({"manifest_id": "../ckpt"}, "plain name"),
        ({"manifest_id": "lease-1"}, "plain name"),
        ({"manifest_id": "ckpt-1-10"}, "another checkpoint"),
    ],
)
def test_a_manifest_that_contradicts_its_attempt_is_refused(
    catalogue: Catalogue, change: dict[str, str], words: str
) -> None:
    catalogue.world.submit()
    lease = catalogue.world.claim()
    catalogue.commit(lease, 10)
    offered = manifest(lease, 20).model_copy(update=change)
    with pytest.raises(Conflict, match=words):
        catalogue.world.manager.commit_checkpoint(TASK, lease.lease_id, Offer(offered, "{}", None))
    assert catalogue.steps() == [10]
    assert words in catalogue.events(REJECTED)[0]["reason"]


def test_a_checkpoint_with_a_problem_is_refused_and_the_attempt_goes_on(
    catalogue: Catalogue,
) -> None:
    """L3."""
    catalogue.world.submit()
    lease = catalogue.world.claim()
    for offer in (
        Offer(manifest(lease, 10), "{}", None, "part 'p0' is not there"),
        Offer(None, "{}", None, "the manifest is not strict JSON"),
    ):
        with pytest.raises(Conflict):
            catalogue.world.manager.commit_checkpoint(TASK, lease.lease_id, offer)
    assert catalogue.latest() is None
    assert catalogue.commit(lease, 10).step == 10
    assert len(catalogue.events(REJECTED)) == 1, "one for each kind and lease: no flood of events"


def test_retention_keeps_the_newest_and_never_the_last(catalogue: Catalogue) -> None:
    """C13; the task says keep=3."""
    catalogue.world.submit()
    lease = catalogue.world.claim()
    for step in (10, 20, 30, 40, 5):
        catalogue.commit(lease, step, parts=(f"own {step}", "frozen"))
    assert catalogue.steps() == [40, 30, 20, 5]
    kept = {part(f"own {step}").sha256 for step in (40, 30, 20, 5)} | {part("frozen").sha256}
    assert catalogue.needed() == kept
    assert catalogue.freed == [part("own 10").sha256], "the frozen part is needed still"


def test_a_checkpoint_that_is_set_aside_is_skipped_for_ever(catalogue: Catalogue) -> None:
    catalogue.world.submit()
    lease = catalogue.world.claim()
    for step in (10, 20):
        catalogue.commit(lease, step)
    call = catalogue.world.manager.set_checkpoint_aside
    assert call(TASK, lease.lease_id, "ckpt-1-20", "does not load").set_aside == "does not load"
    assert call(TASK, lease.lease_id, "ckpt-1-20", "again").set_aside == "does not load"
    with pytest.raises(NotFound):
        call(TASK, lease.lease_id, "ckpt-9", "never seen")
    catalogue.world.restart()
    assert catalogue.commit(lease, 20).set_aside == "does not load", "a repeat brings nothing back"
    assert catalogue.latest() == 10
    assert catalogue.needed() == {part(f"{lease.lease_id}/10").sha256}
    [aside] = catalogue.world.manager.checkpoint_state(TASK).set_aside
    assert aside == TakenOver(step=20, manifest_id="ckpt-1-20")
    assert len(catalogue.events(EventType.CHECKPOINT_SET_ASIDE)) == 1


def test_announced_parts_are_needed_until_the_next_announcement_or_the_end(
    catalogue: Catalogue,
) -> None:
    world = catalogue.world
    world.submit()
    lease = world.claim()
    world.manager.announce_parts(TASK, lease.lease_id, [part("a"), part("b"), part("a")])
    assert world.manager.announced_size(TASK, lease.lease_id, part("b").sha256) == 1
    assert world.manager.is_part_referenced(part("a").sha256)
    world.manager.announce_parts(TASK, lease.lease_id, [part("c")])
    assert catalogue.needed() == {part("c").sha256}
    with pytest.raises(Conflict, match="not announced"):
        world.manager.announced_size(TASK, lease.lease_id, part("a").sha256)
    with pytest.raises(NotFound):
        world.manager.referenced_size(TASK, part("c").sha256)
    world.complete(lease)
    assert catalogue.needed() == set()


def test_a_job_that_is_forgotten_needs_nothing(catalogue: Catalogue) -> None:
    for number in (1, 10):
        catalogue.world.submit(job_id=f"job-{number}")
    lease, other = catalogue.world.claim(), catalogue.world.claim()
    catalogue.commit(lease, 10)
    name = TaskName("job-10", "0")
    catalogue.world.manager.announce_parts(name, other.lease_id, [part("x")])
    with catalogue.world.store.transaction() as tx:
        assert tx.tasks_with_part(part(f"{lease.lease_id}/10").sha256, 9) == ["job-1-00000"]
        while tx.forget_checkpoints("job-1", 1) is not None:
            pass
    assert catalogue.needed() == {part("x").sha256}
    assert catalogue.steps() == []


@pytest.mark.parametrize("task", ["1", "job-1-00001", "job-2-00000", "", "\udcff", "9" * 40])
def test_a_task_that_is_not_there_is_not_found(catalogue: Catalogue, task: str) -> None:
    catalogue.world.submit()
    catalogue.world.submit(job_id="job-2")
    with pytest.raises(NotFound):
        catalogue.world.manager.checkpoints(TaskName("job-1", task))


def test_a_lease_of_another_task_is_refused(catalogue: Catalogue) -> None:
    catalogue.world.submit(tasks=2)
    catalogue.world.claim()
    other = catalogue.world.claim()
    with pytest.raises(Conflict, match="one of task job-1-00001"):
        catalogue.commit(other, 10)
    by_id = TaskName("job-1", "job-1-00001")
    catalogue.world.manager.announce_parts(by_id, other.lease_id, [part("x")])


@pytest.mark.parametrize("open_store", ["sqlite"], indirect=True)
def test_no_call_about_checkpoints_walks_a_table(catalogue: Catalogue) -> None:
    """L16: the cost of a call must not grow with other tasks, jobs or old checkpoints."""
    world = catalogue.world
    assert isinstance(world.store, SqliteStore)
    world.submit(tasks=50)
    lease = world.claim()
    catalogue.commit(lease, 10)
    seen: list[str] = []
    world.store._db.set_trace_callback(seen.append)
    for step in (20, 30, 40, 50):
        world.manager.announce_parts(TASK, lease.lease_id, [part(f"{lease.lease_id}/{step}")])
        world.manager.announced_size(TASK, lease.lease_id, part(f"{lease.lease_id}/{step}").sha256)
        catalogue.commit(lease, step)
    world.manager.checkpoint_state(TASK)
    world.manager.newest_checkpoint(TASK, ())
    world.manager.referenced_size(TASK, part(f"{lease.lease_id}/50").sha256)
    world.manager.set_checkpoint_aside(TASK, lease.lease_id, "ckpt-1-50", "no use")
    world.manager.is_part_referenced(part("x").sha256)
    world.manager.lost_work(TASK)
    with world.store.transaction() as tx:
        tx.release_ended()
        tx.committed_parts("", 9)
        tx.tasks_with_part(part("x").sha256, 9)
        while tx.forget_checkpoints("job-1", 2) is not None:
            pass
    world.store._db.set_trace_callback(None)
    for sql in {sql for sql in seen if re.match(r"\s*(SELECT|UPDATE|DELETE)", sql)}:
        for *_, plan in world.store._db.execute(f"EXPLAIN QUERY PLAN {sql}"):
            assert "SCAN" not in plan, (sql, plan)
            assert "TEMP B-TREE" not in plan, (sql, plan)
