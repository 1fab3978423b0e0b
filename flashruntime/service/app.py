"""The coordinator as an ASGI application: `uvicorn flashruntime.service.app:app`.

Importing this reads no environment and opens no file; starting it does.
"""

import asyncio
import gc
import logging
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from types import FrameType

from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from flashruntime.clock import SystemClock
from flashruntime.config import CoordinatorSettings
from flashruntime.errors import FlashError
from flashruntime.service import jsonlog
from flashruntime.service.core import DATABASE, Core
from flashruntime.service.description import Described
from flashruntime.service.errors import add_handlers
from flashruntime.service.guards import Gate, Guard
from flashruntime.service.hot import HotPaths
from flashruntime.service.housekeeping import Housekeeping
from flashruntime.service.observe import Observed
from flashruntime.service.requests import PREFIX, AroundRequests
from flashruntime.service.routes import (
    artifacts,
    checkpoints,
    duties,
    health,
    jobs,
    leases,
    metrics,
    nodes,
    page,
)
from flashruntime.service.services import Services
from flashruntime.service.settler import Settler
from flashruntime.service.sweeper import Sweeper
from flashruntime.service.watching import Watching

log = logging.getLogger(__name__)


class OneLineFailure:
    """Says why a start failed in one line, where a stack trace would hide it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass everything on but the trace of an expected error at start."""
        if scope["type"] != "lifespan":
            await self._app(scope, receive, send)
            return

        async def explained(message: Message) -> None:
            error = sys.exception()
            if message["type"] == "lifespan.startup.failed" and isinstance(error, FlashError):
                message = {"type": message["type"], "message": f"cannot start: {error}"}
            await send(message)

        await self._app(scope, receive, explained)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Run a coordinator with the settings of the environment."""
    settings = CoordinatorSettings.from_env()
    with jsonlog.running(level=settings.log_level):
        core = Core(settings, SystemClock())
        core.on_commit = app.state.observed.committed
        watching = Watching(settings.ledger_dir / DATABASE, core.closing, app.state.observed)
        async with _running(core), watching.running(core.changed):
            app.state.services = services = Services(core)
            services.stepped = watching.stepped
            app.state.watching = watching
            app.state.gate = Gate(settings.access, services.lease_owner)
            where = {"ledger": settings.ledger_dir, "artifacts": settings.artifact_dir}
            gc.collect()
            gc.freeze()
            log.info("ready", extra={"event": "coordinator_ready", **where})
            yield
        log.info("stopped", extra={"event": "coordinator_stopped"})


class Coordinator(Described):
    """The application, observed around everything else, its answers to errors included."""

    def build_middleware_stack(self) -> ASGIApp:
        """Return the application with all its layers."""
        return AroundRequests(super().build_middleware_stack(), self.state.observed)


def create_app() -> FastAPI:
    """Assemble the application; it reads its settings when it starts."""
    app = Coordinator(
        title="flashruntime coordinator",
        version="v1alpha1",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    app.state.observed = Observed()
    app.router.redirect_slashes = False
    for part in (jobs, nodes, duties, leases, artifacts, checkpoints):
        app.include_router(part.router, prefix=PREFIX)
    app.include_router(page.api, prefix=PREFIX)
    for part in (health, metrics, page):
        app.include_router(part.router)
    add_handlers(app)
    app.add_middleware(HotPaths)
    app.add_middleware(Guard)
    app.add_middleware(OneLineFailure)
    return app


@asynccontextmanager
async def _running(core: Core) -> AsyncIterator[None]:
    await core.open()
    tasks = [
        asyncio.create_task(each.run())
        for each in (Sweeper(core), Settler(core), Housekeeping(core))
    ]
    try:
        with _closed_by_signals(core.closing):
            yield
    finally:
        core.closing.set()
        core.stop_scrubbing()
        await asyncio.gather(*tasks, return_exceptions=True)
        await core.close()


@contextmanager
def _closed_by_signals(closing: asyncio.Event) -> Iterator[None]:
    """Set `closing` on SIGTERM and SIGINT before the server's own handler runs.

    The server waits for every open request; those that wait for work must end first.
    """
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    ours = {number: handler for number, handler in before.items() if callable(handler)}

    def handle(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(closing.set)
        ours[signal.Signals(number)](number, frame)

    try:
        for number in ours:
            signal.signal(number, handle)
    except ValueError:
        ours.clear()
    try:
        yield
    finally:
        for number, handler in ours.items():
            signal.signal(number, handler)


app = create_app()
