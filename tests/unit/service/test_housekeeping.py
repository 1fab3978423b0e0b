"""The chores of a coordinator, step by step, on a clock that the test moves."""

import asyncio
import hashlib
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from flashruntime.config import CoordinatorSettings, KeepingSettings
from flashruntime.errors import ArtifactCorrupt, NotFound, QuotaExceeded, StoreFull
from flashruntime.protocol.jobs import JobSpec
from flashruntime.protocol.nodes import NodeRegistration
from flashruntime.protocol.tasks import ArtifactRecord, ClaimRequest, CompleteRequest, Lease
from flashruntime.service import scrub
from flashruntime.service.collector import Collector, collect
from flashruntime.service.core import Core
from flashruntime.service.housekeeping import Housekeeping
from flashruntime.service.retention import Retainer
from flashruntime.service.scrub import Scrubber
from flashruntime.service.services import Services
from flashruntime.testing import ManualClock

SPEC = JobSpec.model_validate(
    {
        "apiVersion": "flashml.dev/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "j"},
        "spec": {
            "workload": {
                "type": "command",
                "parameters": {"command": ["true"], "lease_seconds": 30},
            }
        },
    }
)
DATA = b"some bytes"
DIGEST = hashlib.sha256(DATA).hexdigest()
DAY_S = 86_400
LARGE = os.urandom(1_500_000)
QUICK = KeepingSettings(scrub_bytes_per_s=10**12)
Story = Callable[[Services, Core, ManualClock], Awaitable[None]]


def play(root: Path, story: Story, keeping: KeepingSettings = QUICK) -> None:
    async def run() -> None:
        clock = ManualClock()
        settings = CoordinatorSettings(root / "ledger", root / "artifacts", 10_000_000, keeping)
        core = Core(settings, clock)
        await core.open()
        try:
            await asyncio.wait_for(story(Services(core), core, clock), 20)
        finally:
            core.closing.set()
            core.stop_scrubbing()
            await core.close()

    asyncio.run(run())


async def chunks(data: bytes) -> AsyncIterator[bytes]:
    yield data


async def put(services: Services, key: str, data: bytes = DATA) -> ArtifactRecord:
    return await services.artifacts.put(key, chunks(data), None, None)


async def get(services: Services, key: str, start: int = 0, end: int | None = None) -> bytes:
    record = await services.artifacts.find(key)
    stream = await services.artifacts.read(record, start, record.size_bytes if end is None else end)
    return b"".join([block async for block in stream])


async def leased(services: Services, core: Core) -> Lease:
    job = await services.jobs.submit(SPEC, None)
    lease = await core.ledger(core.manager.claim, ClaimRequest(node_id="n", job_id=job.job_id))
    assert lease is not None
    return lease


async def all_of(step: Callable[[], Awaitable[float | None]]) -> float:
    while (pause_s := await step()) is None:
        pass
    return pause_s


def file_of(core: Core, sha256: str = DIGEST) -> Path:
    return core.blobs.root / "sha256" / sha256[:2] / sha256


def age(core: Core, clock: ManualClock, age_s: float, sha256: str = DIGEST) -> None:
    """Make a blob as old as that on the coordinator's clock."""
    at_s = clock.utc_now().timestamp() - age_s
    os.utime(file_of(core, sha256), (at_s, at_s))


def rot(core: Core, sha256: str = DIGEST) -> None:
    """Change one byte, as a disk does: size and times stay."""
    path = file_of(core, sha256)
    status = path.stat()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


async def events(core: Core, kind: str) -> list[tuple[str | None, str | None, object]]:
    page = await core.ledger(core.manager.events, None, 0, 1_000)
    return [(e.job_id, e.task_id, e.data.get("key")) for e in page.items if e.type.value == kind]


def test_a_deleted_job_leaves_neither_rows_nor_output_nor_bytes(tmp_path: Path) -> None:
    async def story(services: Services, core: Core, _clock: ManualClock) -> None:
        lease = await leased(services, core)
        await put(services, lease.commit_key)
        await put(services, "mine", b"other")
        await services.attempts.append_output(lease.lease_id, 0, b"text")
        request = CompleteRequest(output_sha256=DIGEST)
        assert (await core.ledger(core.manager.complete, lease.lease_id, request)).accepted
        woken = core.care.work.next()
        await services.jobs.delete(lease.job_id)
        assert woken.is_set()
        await all_of(Retainer(core).step)
        assert not file_of(core).exists()
        assert not (core.logs.root / lease.job_id).exists()
        assert await get(services, "mine") == b"other"
        with pytest.raises(NotFound):
            await services.jobs.output(lease.job_id, 1, None, None)

    play(tmp_path, story)


def test_a_jump_of_the_wall_clock_deletes_nothing(tmp_path: Path) -> None:
    async def story(services: Services, core: Core, clock: ManualClock) -> None:
        lease = await leased(services, core)
        await core.ledger(core.manager.cancel_job, lease.job_id)
        retainer = Retainer(core)
        clock.jump_wall(200 * DAY_S)
        await all_of(retainer.step)
        assert (await core.ledger(core.manager.job, lease.job_id)).state.terminal
        clock.advance(91 * DAY_S)
        await all_of(retainer.step)
        with pytest.raises(NotFound):
            await core.ledger(core.manager.job, lease.job_id)

    play(tmp_path, story)


def test_silent_workers_are_forgotten_after_a_week(tmp_path: Path) -> None:
    async def story(_services: Services, core: Core, clock: ManualClock) -> None:
        await core.ledger(core.manager.register_node, NodeRegistration(node_id="n"))
        retainer = Retainer(core)
        await all_of(retainer.step)
        clock.advance(6 * DAY_S)
        await all_of(retainer.step)
        assert len((await core.ledger(core.manager.nodes)).items) == 1
        clock.advance(2 * DAY_S)
        await all_of(retainer.step)
        assert (await core.ledger(core.manager.nodes)).items == []

    play(tmp_path, story)


def test_retention_can_be_turned_off(tmp_path: Path) -> None:
    async def story(services: Services, core: Core, clock: ManualClock) -> None:
        lease = await leased(services, core)
        await core.ledger(core.manager.cancel_job, lease.job_id)
        clock.advance(10_000 * DAY_S)
        await all_of(Retainer(core).step)
        assert (await core.ledger(core.manager.job, lease.job_id)).state.terminal

    play(tmp_path, story, replace(QUICK, retention_days=0, retention_node_days=0))


def test_what_nothing_refers_to_is_collected_once_it_is_old(tmp_path: Path) -> None:
    """As after a kill -9 between the bytes and their row, or an object that was replaced."""

    async def story(services: Services, core: Core, clock: ManualClock) -> None:
        await put(services, "k")
        kept = await put(services, "k", b"newer")
        for sha256 in (DIGEST, kept.sha256):
            age(core, clock, 3_000, sha256)
        await all_of(Collector(core).step)
        assert file_of(core).exists()
        for sha256 in (DIGEST, kept.sha256):
            age(core, clock, 4_000, sha256)
        await all_of(Collector(core).step)
        assert not file_of(core).exists()
        assert await get(services, "k") == b"newer"

    play(tmp_path, story)


def test_an_input_that_was_uploaded_and_never_taken_is_kept_for_a_day(tmp_path: Path) -> None:
    async def story(services: Services, core: Core, clock: ManualClock) -> None:
        await put(services, f"inputs/{DIGEST}")
        age(core, clock, DAY_S - 60)
        await all_of(Collector(core).step)
        assert file_of(core).exists()
        age(core, clock, DAY_S + 60)
        await all_of(Collector(core).step)
        assert not file_of(core).exists()
        with pytest.raises(NotFound):
            await services.artifacts.find(f"inputs/{DIGEST}")

    play(tmp_path, story)


def test_bytes_that_are_uploaded_at_this_moment_are_not_collected(tmp_path: Path) -> None:
    """A whole upload that waits for its row, when the collector finds no row."""

    async def story(services: Services, core: Core, _clock: ManualClock) -> None:
        await put(services, "k")
        await put(services, "k", b"newer")
        put_object, collected = core.manager.put_object, 0

        def late(key: str, sha256: str, size_bytes: int, lease_id: str | None) -> ArtifactRecord:
            nonlocal collected
            assert core.manager.unreferenced([sha256]) == [sha256]
            collected += core.blobs.take_away(sha256) is not None
            return put_object(key, sha256, size_bytes, lease_id)

        core.manager.put_object = late  # type: ignore[method-assign]
        await put(services, "again")
        assert collected == 0
        assert await get(services, "again") == DATA
        assert await collect(core, [DIGEST]) == 0

    play(tmp_path, story)


def test_vanished_bytes_are_noticed_and_named(tmp_path: Path) -> None:
    async def story(services: Services, core: Core, _clock: ManualClock) -> None:
        lease = await leased(services, core)
        await put(services, lease.commit_key)
        short = await put(services, "short", b"123456")
        await put(services, "fine", b"fine")
        file_of(core).unlink()
        file_of(core, short.sha256).write_bytes(b"123")
        await all_of(Collector(core).step)
        assert (
            await events(core, "ARTIFACT_CORRUPT")
            == [
                (lease.job_id, lease.task_id, lease.commit_key),
                (None, None, "short"),
            ]
            or len(await events(core, "ARTIFACT_CORRUPT")) == 2
        )
        assert core.care.damaged == 2
        with pytest.raises(ArtifactCorrupt, match=r"missing.*upload it again"):
            await services.artifacts.find(lease.commit_key)
        await put(services, lease.commit_key)
        assert await get(services, lease.commit_key) == DATA
        await all_of(Collector(core).step)
        assert core.care.damaged == 1
        quarantine = core.blobs.root / "quarantine"
        assert [path.name for path in quarantine.iterdir()] == [short.sha256]
        await put(services, "short", b"else")
        await all_of(Collector(core).step)
        assert core.care.damaged == 0
        assert list(quarantine.iterdir()) == []

    play(tmp_path, story)


def test_the_scrub_finds_a_flipped_bit_and_an_upload_heals_it(tmp_path: Path) -> None:
    async def story(services: Services, core: Core, _clock: ManualClock) -> None:
        lease = await leased(services, core)
        await put(services, lease.commit_key)
        await put(services, "fine", LARGE)
        scrubber = Scrubber(core)
        await all_of(scrubber.step)
        assert (core.care.damaged, core.care.scrub_passes) == (0, 1)
        assert core.care.scrubbed_bytes == len(DATA) + len(LARGE)
        rot(core)
        await all_of(scrubber.step)
        assert core.care.damaged == 1
        named = (lease.job_id, lease.task_id, lease.commit_key)
        assert await events(core, "ARTIFACT_CORRUPT") == [named]
        assert (core.blobs.root / "quarantine" / DIGEST).exists()
        with pytest.raises(ArtifactCorrupt, match="hash to"):
            await services.artifacts.find(lease.commit_key)
        await put(services, lease.commit_key)
        assert await get(services, lease.commit_key) == DATA
        assert await events(core, "ARTIFACT_RESTORED") != []

    play(tmp_path, story)


@pytest.mark.parametrize(("data", "part"), [(DATA, None), (LARGE, None), (DATA, (2, 4))])
def test_rotten_bytes_are_never_given_out_as_good(
    tmp_path: Path, data: bytes, part: tuple[int, int] | None
) -> None:
    async def story(services: Services, core: Core, _clock: ManualClock) -> None:
        record = await put(services, "k", data)
        rot(core, record.sha256)
        received = b""
        with pytest.raises(ArtifactCorrupt, match="hash to"):
            received = await get(services, "k", *(part or ()))
        assert received == b""
        assert core.care.damaged == 1
        with pytest.raises(ArtifactCorrupt):
            await services.artifacts.check(record)
        await put(services, "k", data)
        assert await get(services, "k", *(part or ())) == (data[2:4] if part else data)

    play(tmp_path, story)


def test_the_last_bytes_of_a_rotten_object_are_held_back(tmp_path: Path) -> None:
    """So that a client which reads to the length that was stated sees a break."""

    async def story(services: Services, core: Core, _clock: ManualClock) -> None:
        record = await put(services, "k", LARGE)
        rot(core, record.sha256)
        received = 0
        stream = await services.artifacts.read(record, 0, len(LARGE))
        with pytest.raises(ArtifactCorrupt):  # noqa: PT012 (the break comes between blocks)
            async for block in stream:
                received += len(block)
        assert 0 < received < len(LARGE)

    play(tmp_path, story)


def test_a_scrub_goes_on_where_it_was_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scrub, "MARK_EVERY_S", 0)
    seen: list[str] = []
    first_half = 0

    async def begin(services: Services, core: Core, _clock: ManualClock) -> None:
        for number in range(8):
            await put(services, f"k{number}", b"%d" % number)
        scrubber = Scrubber(core)
        for _ in range(4):
            await scrubber.step()

    async def go_on(_services: Services, core: Core, _clock: ManualClock) -> None:
        scrubber = Scrubber(core)
        examine = scrubber._examine

        def noted(blob: object) -> object:
            seen.append(blob.sha256)  # type: ignore[attr-defined]
            return examine(blob)  # type: ignore[arg-type]

        scrubber._examine = noted  # type: ignore[method-assign, assignment]
        await all_of(scrubber.step)
        nonlocal first_half
        first_half = len(seen)
        await all_of(scrubber.step)

    play(tmp_path, begin)
    play(tmp_path, go_on)
    assert (first_half, len(seen)) == (4, 12)
    assert seen == sorted(seen[:4]) + sorted(seen[4:])


def test_a_scrub_keeps_its_rate_and_ends_at_once_when_the_coordinator_closes(
    tmp_path: Path,
) -> None:
    """1.5 MB at 10 kB a second would take more than two minutes."""
    began_s = 0.0

    async def story(services: Services, core: Core, _clock: ManualClock) -> None:
        nonlocal began_s
        await put(services, "k", LARGE)
        scrubbing = asyncio.create_task(Scrubber(core).step())
        await asyncio.sleep(0)
        assert not scrubbing.done()
        began_s = time.monotonic()

    play(tmp_path, story, replace(QUICK, scrub_bytes_per_s=10_000))
    assert time.monotonic() - began_s < 5


def test_a_scrub_waits_for_transfers(tmp_path: Path) -> None:
    async def story(services: Services, core: Core, _clock: ManualClock) -> None:
        await put(services, "k")
        with core.blobs.guard.transfer():
            assert not core.blobs.guard.wait_for_quiet(0)
        assert core.blobs.guard.wait_for_quiet(0)

    play(tmp_path, story)


def test_quotas_refuse_uploads_while_they_arrive(tmp_path: Path) -> None:
    keeping = replace(QUICK, max_job_bytes=2_000_000, max_store_bytes=2_500_000)

    async def story(services: Services, core: Core, _clock: ManualClock) -> None:
        lease = await leased(services, core)
        read = 0

        async def endless() -> AsyncIterator[bytes]:
            nonlocal read
            while True:
                read += 1_000_000
                yield bytes(1_000_000)

        with pytest.raises(QuotaExceeded, match=f"job {lease.job_id} stores 0 bytes"):
            await services.artifacts.put(lease.commit_key, endless(), None, None)
        assert read < 5_000_000
        with pytest.raises(StoreFull):
            await services.artifacts.put("k", endless(), None, None)
        for key, error in ((lease.commit_key, QuotaExceeded), ("k", StoreFull)):
            before = read
            with pytest.raises(error):
                await services.artifacts.put(key, endless(), 3_000_000, None)
            assert read == before
        assert list((core.blobs.root / "tmp").iterdir()) == []
        await services.artifacts.put(lease.commit_key, chunks(LARGE), None, None)

    play(tmp_path, story, keeping)


def watched(chore: Retainer | Collector | Scrubber) -> asyncio.Event:
    """An event for the end of the chore's first pass."""
    step, ended = chore.step, asyncio.Event()

    async def told() -> float | None:
        pause_s = await step()
        if pause_s is not None:
            ended.set()
        return pause_s

    chore.step = told  # type: ignore[method-assign]
    return ended


def test_all_chores_run_and_end_with_the_coordinator(tmp_path: Path) -> None:
    async def story(services: Services, core: Core, clock: ManualClock) -> None:
        await put(services, "k")
        await put(services, "k", b"newer")
        age(core, clock, 5_000)
        keeping = Housekeeping(core, start_s=0)
        passes = [watched(keeping.retainer), watched(keeping.collector), watched(keeping.scrubber)]
        running = asyncio.create_task(keeping.run())
        for ended in passes:
            await ended.wait()
        assert (core.care.scrub_passes, file_of(core).exists()) == (1, False)
        core.closing.set()
        await asyncio.wait_for(running, 5)

    play(tmp_path, story)


def test_a_chore_that_fails_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flashruntime.service.housekeeping.RETRY_S", 0)
    failures = 0

    async def story(_services: Services, core: Core, _clock: ManualClock) -> None:
        keeping = Housekeeping(core, start_s=0)
        ended = watched(keeping.collector)
        expected = core.manager.expected

        def failing(after: str, limit: int) -> list[tuple[str, int]]:
            nonlocal failures
            failures += 1
            if failures < 3:
                raise KeyError
            return expected(after, limit)

        core.manager.expected = failing  # type: ignore[method-assign]
        running = asyncio.create_task(keeping.run())
        await ended.wait()
        assert failures > 2
        core.closing.set()
        await asyncio.wait_for(running, 5)

    play(tmp_path, story)
