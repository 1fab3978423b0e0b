"""Session streams without sockets: an ASGI answer whose other side the test plays."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from flashruntime.clock import SystemClock
from flashruntime.config import CoordinatorSettings
from flashruntime.errors import StoreUnavailable
from flashruntime.protocol.jobs import JobSpec
from flashruntime.protocol.nodes import NodeRegistration
from flashruntime.protocol.tasks import ClaimRequest, Lease, TaskState
from flashruntime.service.core import Core
from flashruntime.service.services import Services
from flashruntime.service.sessions import Sessions, Timing

QUICK = Timing(keepalive_s=0.01, grace_s=0.02, window_s=0.02, together_s=30.0)


class Player:
    """A worker that is registered and holds its stream open."""

    def __init__(self, services: Services, node_id: str) -> None:
        self.services = services
        self.node_id = node_id
        self.lines: list[dict[str, Any]] = []
        self.told = asyncio.Event()
        self._gone = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def join(self) -> "Player":
        registered = await self.services.sessions.register(NodeRegistration(node_id=self.node_id))
        self.session_id = registered.session_id
        await self.open()
        return self

    async def open(self) -> None:
        stream = await self.services.sessions.open(self.node_id, self.session_id)
        self._gone.clear()
        self._task = asyncio.create_task(stream({"type": "http"}, self._receive, self._send))
        await self._next_line()

    async def _receive(self) -> dict[str, Any]:
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.body" and not self._gone.is_set():
            self.lines.append(json.loads(message["body"]))
            self.told.set()

    async def _next_line(self) -> None:
        self.told.clear()
        await self.told.wait()

    async def ended(self) -> str:
        """Wait for the last line; return the reason in it."""
        assert self._task is not None
        await self._task
        return str(self.lines[-1]["reason"])

    def cut(self) -> None:
        self._gone.set()

    async def closed(self) -> None:
        """Wait until the coordinator has seen the end of the connection."""
        assert self._task is not None
        await self._task

    async def claim(self, wait_s: float = 0) -> Lease | None:
        async def never() -> None:
            await asyncio.Event().wait()

        request = ClaimRequest(node_id=self.node_id, session_id=self.session_id, wait_s=wait_s)
        return await self.services.attempts.claim(request, never)


Story = Callable[[Services, Core], Awaitable[None]]


def play(root: Path, story: Story, timing: Timing = QUICK) -> None:
    """Run `story` against a coordinator below `root`, with one job of two tasks."""

    async def run() -> None:
        settings = CoordinatorSettings(root / "ledger", root / "artifacts", 10_000_000)
        core = Core(settings, SystemClock())
        await core.open()
        try:
            services = Services(core)
            services.sessions = Sessions(core, timing)
            await services.jobs.submit(job(), None)
            await asyncio.wait_for(story(services, core), 10)
        finally:
            core.closing.set()
            await core.close()

    asyncio.run(run())


def job() -> JobSpec:
    parameters = {"command": ["true", "{n}"], "task_params": [{"n": 1}, {"n": 2}]}
    body = {"apiVersion": "flashml.dev/v1alpha1", "kind": "Job", "metadata": {"name": "j"}}
    workload = {"type": "command", "parameters": {**parameters, "lease_seconds": 60}}
    return JobSpec.model_validate({**body, "spec": {"workload": workload}})


async def states(services: Services) -> list[TaskState]:
    (only,) = services.manager.jobs(None, 1).items
    return [task.state for task in services.manager.tasks(only.job_id, None, 10).items]


def kinds(services: Services) -> list[str]:
    return [event.type.value for event in services.manager.events(None, 0, 1000).items]


def test_a_stream_says_who_it_is_for_and_then_that_it_is_alive(tmp_path: Path) -> None:
    async def story(services: Services, _core: Core) -> None:
        player = await Player(services, "n1").join()
        await player._next_line()
        first, second = player.lines[:2]
        assert first == {
            "news": "open",
            "node_id": "n1",
            "session_id": player.session_id,
            "keepalive_s": 0.01,
        }
        assert second == {"news": "alive"}

    play(tmp_path, story)


def test_what_a_closed_connection_held_goes_to_whoever_waits(tmp_path: Path) -> None:
    async def story(services: Services, _core: Core) -> None:
        dead, successor = await Player(services, "n1").join(), await Player(services, "n2").join()
        held = [await dead.claim(), await dead.claim()]
        waiting = asyncio.create_task(successor.claim(60))
        dead.cut()
        lease = await waiting
        assert lease is not None
        assert lease.attempt_number == 2
        assert lease.task_id == held[0].task_id  # type: ignore[union-attr]
        assert not next(n for n in services.manager.nodes().items if n.node_id == "n1").connected

    play(tmp_path, story)


async def holding(services: Services, node_id: str) -> tuple[Player, list[Lease]]:
    """Return a worker that holds one task."""
    player = await Player(services, node_id).join()
    lease = await player.claim()
    assert lease is not None
    return player, [lease]


async def nobody_gets_work(services: Services) -> bool:
    """Wait far longer than the grace of a single session."""
    return await (await Player(services, "idle").join()).claim(0.08) is None


def test_a_stream_that_is_back_within_its_grace_costs_nothing(tmp_path: Path) -> None:
    async def story(services: Services, _core: Core) -> None:
        player, _ = await holding(services, "n1")
        await player.claim()
        player.cut()
        await player.closed()
        await player.open()
        assert await nobody_gets_work(services)
        assert "LEASE_EXPIRED" not in kinds(services)

    play(tmp_path, story)


@pytest.mark.parametrize("sign", ["heartbeat", "claim"])
def test_a_sign_of_life_within_the_grace_costs_nothing(tmp_path: Path, sign: str) -> None:
    """The stream may stay away: from then on the lease counts alone."""

    async def story(services: Services, _core: Core) -> None:
        player, (lease,) = await holding(services, "n1")
        other, _ = await holding(services, "n2")
        player.cut()
        await player.closed()
        if sign == "heartbeat":
            services.sessions.heard(lease.lease_id)
        else:
            services.sessions.claiming("n1", None)
        assert await nobody_gets_work(services)
        assert await states(services) == [TaskState.LEASED] * 2
        assert other.lines[-1]["news"] != "ended"

    play(tmp_path, story)


def test_a_heartbeat_from_before_the_end_is_no_sign_of_life(tmp_path: Path) -> None:
    async def story(services: Services, _core: Core) -> None:
        player, (lease,) = await holding(services, "n1")
        other, _ = await holding(services, "n2")
        other.cut()
        await other.closed()
        services.sessions.heard(lease.lease_id)
        player.cut()
        assert await (await Player(services, "n3").join()).claim(60) is not None

    play(tmp_path, story, Timing(0.01, grace_s=0.02, window_s=0.0, together_s=30.0))


def test_sessions_that_end_together_have_longer_to_come_back(tmp_path: Path) -> None:
    async def story(services: Services, _core: Core) -> None:
        players = [(await holding(services, name))[0] for name in ("n1", "n2")]
        for player in players:
            player.cut()
        for player in players:
            await player.closed()
        assert await nobody_gets_work(services)
        for player in players:
            await player.open()
        assert kinds(services).count("NODE_SESSION_ENDED") == 2
        assert "LEASE_EXPIRED" not in kinds(services)

    play(tmp_path, story)


def test_what_the_ledger_does_not_take_is_told_again(tmp_path: Path) -> None:
    async def story(services: Services, core: Core) -> None:
        player, _ = await holding(services, "n1")
        told = core.manager.end_sessions

        def full(*_: Any) -> int:
            core.manager.end_sessions = told  # type: ignore[method-assign]
            raise StoreUnavailable("no space left")

        core.manager.end_sessions = full  # type: ignore[method-assign, assignment]
        player.cut()
        await (await Player(services, "n2").join()).claim()
        assert await (await Player(services, "n3").join()).claim(60) is not None
        assert kinds(services).count("NODE_SESSION_ENDED") == 1

    play(tmp_path, story)


def test_a_coordinator_that_leaves_says_so_and_loses_nobody(tmp_path: Path) -> None:
    async def story(services: Services, core: Core) -> None:
        player, _ = await holding(services, "n1")
        core.closing.set()
        assert await player.ended() == "stopping"
        assert "NODE_SESSION_ENDED" not in kinds(services)

    play(tmp_path, story)


def test_a_session_that_is_opened_twice_goes_on_in_the_newer_stream(tmp_path: Path) -> None:
    async def story(services: Services, _core: Core) -> None:
        player, _ = await holding(services, "n1")
        await player.claim()
        again = Player(services, "n1")
        again.session_id = player.session_id
        await again.open()
        assert await player.ended() == "replaced"
        assert await nobody_gets_work(services)
        assert services.manager.nodes().items[1].connected
        assert "NODE_SESSION_ENDED" not in kinds(services)

    play(tmp_path, story)


def test_129_an_older_session_ends_with_a_new_registration_and_what_it_held_is_free(
    tmp_path: Path,
) -> None:
    async def story(services: Services, _core: Core) -> None:
        older, (held,) = await holding(services, "n1")
        newer = await Player(services, "n1").join()
        assert await older.ended() == "superseded"
        await newer.claim()
        lease = await newer.claim(60)
        assert lease is not None
        assert (lease.task_id, lease.attempt_number) == (held.task_id, 2)

    play(tmp_path, story)
