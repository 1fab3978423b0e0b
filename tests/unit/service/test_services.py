"""The services without HTTP, on a clock that the test moves."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from flashruntime.config import CoordinatorSettings
from flashruntime.errors import InvalidInput, StoreUnavailable
from flashruntime.protocol.jobs import JobSpec
from flashruntime.protocol.tasks import ClaimRequest, Lease
from flashruntime.service import core as core_module
from flashruntime.service.core import Core
from flashruntime.service.services import Services
from flashruntime.service.sweeper import Sweeper
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


def play(
    root: Path,
    story: Callable[[Services, Core, ManualClock], Awaitable[None]],
    awake_s: Callable[[], float] = time.monotonic,
) -> None:
    """Run `story` against a coordinator below `root`."""

    async def run() -> None:
        clock = ManualClock()
        core = Core(CoordinatorSettings(root / "ledger", root / "artifacts", 10_000_000), clock)
        await core.open()
        sweeping = asyncio.create_task(Sweeper(core, awake_s).run())
        try:
            await asyncio.wait_for(story(Services(core), core, clock), 10)
        finally:
            core.closing.set()
            await sweeping
            await core.close()

    asyncio.run(run())


async def never() -> None:
    await asyncio.Event().wait()


async def claim(services: Services, node: str, wait_s: float = 0) -> Lease | None:
    return await services.attempts.claim(ClaimRequest(node_id=node, wait_s=wait_s), never)


def test_a_lease_that_lapses_wakes_a_waiting_claim(tmp_path: Path) -> None:
    async def story(services: Services, _core: Core, clock: ManualClock) -> None:
        await services.jobs.submit(SPEC, None)
        first = await claim(services, "n1")
        waiting = asyncio.create_task(claim(services, "n2", 60))
        assert await claim(services, "n3") is None
        clock.advance(31)
        second = await waiting
        assert first is not None
        assert second is not None
        assert (first.attempt_number, second.attempt_number) == (1, 2)

    play(tmp_path, story)


async def swept(services: Services) -> None:
    """Return after two more sweeps, the second of which began after this call."""
    sweep, seen = services.manager.sweep, asyncio.Event()
    loop, count = asyncio.get_running_loop(), 0

    def watched() -> int:
        nonlocal count
        count += 1
        if count == 2:
            loop.call_soon_threadsafe(seen.set)
        return sweep()

    services.manager.sweep = watched  # type: ignore[method-assign]
    await seen.wait()
    services.manager.sweep = sweep  # type: ignore[method-assign]


def test_no_lease_lapses_for_the_time_in_which_the_coordinator_stood_still(tmp_path: Path) -> None:
    """Stopped, or with a full disk, it could hear no holder: rule 2, as after a restart."""
    clock_s = 0.0

    async def story(services: Services, _core: Core, clock: ManualClock) -> None:
        def stand_still() -> None:
            nonlocal clock_s
            clock_s += 31
            clock.advance(31)

        await services.jobs.submit(SPEC, None)
        assert await claim(services, "n1") is not None
        await services.ledger(stand_still)
        await swept(services)
        assert await claim(services, "n2") is None
        clock.advance(29)
        await swept(services)
        assert await claim(services, "n2") is None
        clock.advance(2)
        await swept(services)
        second = await claim(services, "n2")
        assert second is not None
        assert second.attempt_number == 2

    play(tmp_path, story, lambda: clock_s)


def test_a_stall_counts_until_what_follows_from_it_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweep whose commit was refused has not happened."""
    clock_s = 0.0

    async def story(services: Services, core: Core, clock: ManualClock) -> None:
        loop, refused = asyncio.get_running_loop(), asyncio.Event()
        store = core._commits.store
        assert store is not None
        group = store.group

        @contextmanager
        def full(*, wait: bool = True) -> Iterator[Callable[[], bool]]:
            with group(wait=wait) as changed:
                yield changed
                loop.call_soon_threadsafe(refused.set)
                raise StoreUnavailable("full")

        def stand_still() -> None:
            nonlocal clock_s
            clock_s += 31
            clock.advance(31)

        await services.jobs.submit(SPEC, None)
        assert await claim(services, "n1") is not None
        with monkeypatch.context() as disk:
            disk.setattr(store, "group", full)
            with pytest.raises(StoreUnavailable):
                await services.ledger(stand_still)
            for _ in range(3):
                refused.clear()
                await refused.wait()
        await swept(services)
        assert await claim(services, "n2") is None

    play(tmp_path, story, lambda: clock_s)


def test_sweeps_go_on_after_one_that_failed_unexpectedly(tmp_path: Path) -> None:
    async def story(services: Services, _core: Core, clock: ManualClock) -> None:
        await services.jobs.submit(SPEC, None)
        assert await claim(services, "n1") is not None
        sweep, broken = services.manager.sweep, asyncio.Event()
        loop = asyncio.get_running_loop()

        def failing() -> int:
            services.manager.sweep = sweep  # type: ignore[method-assign]
            loop.call_soon_threadsafe(broken.set)
            raise KeyError

        services.manager.sweep = failing  # type: ignore[method-assign]
        await broken.wait()
        waiting = asyncio.create_task(claim(services, "n2", 60))
        clock.advance(31)
        assert await waiting is not None

    play(tmp_path, story)


def test_a_repeated_submission_gives_the_first_job_although_its_input_has_changed(
    tmp_path: Path,
) -> None:
    """Rule 4: the answer may have been lost."""

    async def story(services: Services, _core: Core, _clock: ManualClock) -> None:
        async def content(text: bytes) -> AsyncIterator[bytes]:
            yield text

        first = await services.artifacts.put("in", content(b"1"), None, None)
        raw = SPEC.model_dump(mode="json")
        file = {"path": "in", "key": "in", "sha256": first.sha256}
        raw["spec"]["workload"]["parameters"]["inputs"] = [file]
        spec = JobSpec.model_validate(raw)
        job = await services.jobs.submit(spec, "key")
        await services.artifacts.put("in", content(b"2"), None, None)
        assert (await services.jobs.submit(spec, "key")).job_id == job.job_id
        with pytest.raises(InvalidInput, match="'in'"):
            await services.jobs.submit(spec, "another key")

    play(tmp_path, story)


def test_111_a_jump_of_the_wall_clock_costs_no_lease(tmp_path: Path) -> None:
    async def story(services: Services, _core: Core, clock: ManualClock) -> None:
        await services.jobs.submit(SPEC, None)
        assert await claim(services, "n1") is not None
        for jump_s in (7_200, -14_400):
            clock.jump_wall(jump_s)
            await services.ledger(services.manager.sweep)
            assert await claim(services, "n2") is None

    play(tmp_path, story)


def test_closing_ends_every_waiting_claim_without_a_lease(tmp_path: Path) -> None:
    async def story(services: Services, core: Core, _clock: ManualClock) -> None:
        waiting = [asyncio.create_task(claim(services, f"n{n}", 60)) for n in range(3)]
        assert await claim(services, "last") is None
        core.closing.set()
        assert await asyncio.gather(*waiting) == [None] * 3

    play(tmp_path, story)


def test_a_claim_whose_asker_is_gone_takes_nothing_when_work_arrives(tmp_path: Path) -> None:
    async def story(services: Services, _core: Core, _clock: ManualClock) -> None:
        leaving = asyncio.Event()

        async def gone() -> None:
            await leaving.wait()

        request = ClaimRequest(node_id="n1", wait_s=60)
        waiting = asyncio.create_task(services.attempts.claim(request, gone))
        assert await claim(services, "n2") is None
        leaving.set()
        assert await waiting is None
        await services.jobs.submit(SPEC, None)
        lease = await claim(services, "n2")
        assert lease is not None
        assert lease.attempt_number == 1

    play(tmp_path, story)


def test_a_cancelled_upload_leaves_nothing(tmp_path: Path) -> None:
    async def story(services: Services, core: Core, _clock: ManualClock) -> None:
        arrived = asyncio.Event()

        async def chunks() -> AsyncIterator[bytes]:
            yield b"x" * 2_000_000
            arrived.set()
            await never()

        put = asyncio.create_task(services.artifacts.put("k", chunks(), None, None))
        await arrived.wait()
        assert len(list((core.blobs.root / "tmp").iterdir())) == 1
        put.cancel()
        assert isinstance((await asyncio.gather(put, return_exceptions=True))[0], BaseException)
        assert list((core.blobs.root / "tmp").iterdir()) == []

    play(tmp_path, story)


def test_those_who_ask_at_once_whether_it_is_ready_share_one_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crowd of readiness probes costs no more synchronised writes than one."""
    looks: list[Path] = []
    monkeypatch.setattr(core_module, "check_room", looks.append)

    async def story(_services: Services, core: Core, _clock: ManualClock) -> None:
        await asyncio.gather(*(core.check() for _ in range(50)))
        assert len(looks) == 2
        await core.check()
        assert len(looks) == 4

    play(tmp_path, story)
