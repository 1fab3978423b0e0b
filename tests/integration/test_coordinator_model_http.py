"""The promises of a lease over HTTP: lost answers, duplicates and zombies against the same model.

The application runs in this process on a real ledger and real files, on a clock that the test
moves; every request passes through routing, validation, threads and the typed client.
"""

import asyncio
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar
from unittest.mock import patch

import httpx
import pytest

from flashruntime.client import CoordinatorClient
from flashruntime.protocol.events import Event
from flashruntime.protocol.jobs import JobRecord, JobSpec
from flashruntime.protocol.nodes import NodeRecord, NodeRegistered, NodeRegistration
from flashruntime.protocol.tasks import (
    ArtifactRecord,
    ClaimRequest,
    CompleteAnswer,
    CompleteRequest,
    FailAnswer,
    FailRequest,
    HeartbeatRequest,
    Lease,
    LeaseStatus,
    TaskRecord,
)
from flashruntime.service import app as application
from flashruntime.service.core import Core
from flashruntime.service.services import Services
from flashruntime.testing import ManualClock
from tests.unit.leases.machine_rules import CoordinatorMachine, Port
from tests.unit.leases.machine_run import run

pytestmark = pytest.mark.integration
URL = "http://127.0.0.1:8000"
APP = application.create_app()
T = TypeVar("T")


class InProcess(httpx.BaseTransport):
    """Carries requests to an application on an event loop of the test."""

    def __init__(self, loop: asyncio.AbstractEventLoop, app: httpx.ASGITransport) -> None:
        self._loop = loop
        self._app = app

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return self._loop.run_until_complete(self._answer(request))

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        body = b"".join(request.stream) if isinstance(request.stream, httpx.SyncByteStream) else b""
        sent = httpx.Request(request.method, request.url, headers=request.headers, content=body)
        answer = await self._app.handle_async_request(sent)
        return httpx.Response(
            answer.status_code, headers=answer.headers, content=await answer.aread()
        )


class NoSweeper:
    """Does nothing as time goes by."""

    def __init__(self, core: Core) -> None:
        self._core = core

    async def run(self) -> None:
        await self._core.closing.wait()


class HttpPort:
    """A coordinator without its sweeper: what time alone does happens when the test says so."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.loop = asyncio.new_event_loop()
        self.clock = ManualClock()
        self.client = CoordinatorClient(URL)
        transport = InProcess(self.loop, httpx.ASGITransport(APP, client=("127.0.0.1", 1)))
        self.client._http = httpx.Client(base_url=URL, transport=transport)
        self._start()

    def _start(self) -> None:
        """Run the application's own start, as a server does."""
        places = {
            "FLASHML_LEDGER_DIR": str(self.folder / "ledger"),
            "FLASHML_ARTIFACT_DIR": str(self.folder / "artifacts"),
        }
        self.life = APP.router.lifespan_context(APP)
        with (
            patch.dict("os.environ", places),
            patch.object(application, "SystemClock", lambda: self.clock),
            patch.object(application, "Sweeper", NoSweeper),
        ):
            self.loop.run_until_complete(self.life.__aenter__())
        self.services: Services = APP.state.services
        self.read: set[str] = set()

    def _ledger(self, call: Callable[..., T], *args: object) -> T:
        return self.loop.run_until_complete(self.services.ledger(call, *args))

    def submit(self, spec: JobSpec, key: str | None) -> JobRecord:
        return self.client.submit(spec, key)

    def cancel(self, job_id: str) -> JobRecord:
        return self.client.cancel(job_id)

    def register(self, registration: NodeRegistration) -> NodeRegistered:
        return self.client.register(registration)

    def claim(self, request: ClaimRequest) -> Lease | None:
        return self.client.claim(request)

    def heartbeat(self, lease_id: str, request: HeartbeatRequest) -> LeaseStatus:
        return self.client.heartbeat(lease_id, request)

    def put(self, key: str, data: bytes) -> ArtifactRecord:
        return self.client.put_artifact(key, data)

    def complete(self, lease_id: str, request: CompleteRequest) -> CompleteAnswer:
        return self.client.complete(lease_id, request)

    def fail(self, lease_id: str, request: FailRequest) -> FailAnswer:
        return self.client.fail(lease_id, request)

    def jobs(self) -> list[JobRecord]:
        return self.client.jobs()

    def tasks(self, job_id: str) -> list[TaskRecord]:
        return self.client.tasks(job_id)

    def events(self, after: int) -> list[Event]:
        return self.client.events(None, after, 10_000).items

    def accepted(self, job_id: str) -> list[ArtifactRecord]:
        """Since the last start each is read back once: the bytes are those that were accepted."""
        records = self.client.artifacts(job_id)
        for record in records:
            if record.object_key in self.read:
                continue
            self.read.add(record.object_key)
            self.client.get_artifact(record.object_key, self.folder / "read", record.sha256)
        return records

    def nodes(self) -> list[NodeRecord]:
        return self.client.nodes()

    def live(self, node: str) -> list[str]:
        return self._ledger(self._live, node)

    def _live(self, node: str) -> list[str]:
        with self.services.manager._store.transaction() as tx:
            return [lease.lease_id for lease in tx.live_leases(node)]

    def sweep(self) -> int:
        return self._ledger(self.services.manager.sweep)

    def session_ends(self, node: str, session_id: str | None) -> int:
        return self._ledger(self.services.manager.lapse_node, node, session_id)

    def now_ns(self) -> int:
        return self.clock.monotonic_ns()

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def jump_wall(self, seconds: float) -> None:
        self.clock.jump_wall(seconds)

    def restart(self, reboot: bool) -> None:
        self._stop()
        self.clock = ManualClock() if reboot else self.clock
        self._start()

    def _stop(self) -> None:
        self.loop.run_until_complete(self.life.__aexit__(None, None, None))

    def close(self) -> None:
        self.client.close()
        self._stop()
        self.loop.close()
        shutil.rmtree(self.folder)


class HttpMachine(CoordinatorMachine):
    """The coordinator behind its routes."""

    looks = 1

    def open(self) -> Port:
        return HttpPort()


def test_the_coordinator_keeps_its_promises_over_http() -> None:
    run(HttpMachine, 15, 40)


@pytest.mark.bench_stress
@pytest.mark.timeout(1_800)
def test_the_coordinator_keeps_its_promises_over_http_in_long_lives() -> None:
    run(HttpMachine, 400, 120, shrink=True)
