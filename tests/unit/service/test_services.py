"""The services without HTTP, on a clock that the test moves."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from flashruntime.config import CoordinatorSettings
from flashruntime.protocol.jobs import JobSpec
from flashruntime.protocol.tasks import ClaimRequest, Lease
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


def play(root: Path, story: Callable[[Services, Core, ManualClock], Awaitable[None]]) -> None:
    """Run `story` against a coordinator below `root`."""

    async def run() -> None:
        clock = ManualClock()
        core = Core(CoordinatorSettings(root / "ledger", root / "artifacts", 10_000_000), clock)
        await core.open()
        sweeping = asyncio.create_task(Sweeper(core).run())
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
