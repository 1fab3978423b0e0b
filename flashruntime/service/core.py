"""The parts of a coordinator and the threads that they run on.

All work on the ledger runs on one thread, all work on files in a small pool, so that the event
loop only ever waits.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import ParamSpec, TypeVar

from flashruntime.clock import Clock
from flashruntime.config import CoordinatorSettings
from flashruntime.leases.manager import LeaseManager
from flashruntime.leases.sqlite import SqliteStore
from flashruntime.leases.store import LeaseStore
from flashruntime.recovery.incidents import Judge
from flashruntime.service.attempt_logs import AttemptLogs
from flashruntime.service.blobs import BlobStore, check_room, require_writable
from flashruntime.service.waiting import Signal

P = ParamSpec("P")
T = TypeVar("T")
DISK_THREADS = 4
DATABASE = "ledger.sqlite3"


class Core:
    """One coordinator. `open` and `close` frame its life; `closing` ends every wait."""

    manager: LeaseManager
    _store: LeaseStore

    def __init__(self, settings: CoordinatorSettings, clock: Clock) -> None:
        self._settings = settings
        self.clock = clock
        self._ledger_thread = ThreadPoolExecutor(1, "ledger")
        self._output_thread = ThreadPoolExecutor(1, "output")
        self._disk_threads = ThreadPoolExecutor(DISK_THREADS, "disk")
        self.blobs = BlobStore(settings.artifact_dir, settings.max_artifact_bytes)
        self.logs = AttemptLogs(settings.ledger_dir / "logs")
        self.judge = Judge(clock.monotonic_ns).decide
        self.work = Signal()
        self.closing = asyncio.Event()
        self.changed = asyncio.Event()
        self.on_commit: Callable[[float], None] | None = None

    async def open(self) -> None:
        """Take ledger and artifacts; every live lease gets its full time again."""
        await self.ledger(self._open)

    def _open(self) -> None:
        require_writable(self._settings.ledger_dir, "FLASHML_LEDGER_DIR")
        with ExitStack() as undo:
            store = SqliteStore(self._settings.ledger_dir / DATABASE)
            undo.callback(store.close)
            store.on_commit = self.on_commit
            self.blobs.open()
            undo.callback(self.blobs.close)
            manager = LeaseManager(store, self.clock, self.judge)
            manager.start()
            undo.pop_all()
        self._store, self.manager = store, manager

    async def close(self) -> None:
        """Let running work end, then release artifacts and ledger."""
        for threads in (self._output_thread, self._disk_threads):
            threads.shutdown()
        self.blobs.close()
        await self.ledger(self._store.close)
        self._ledger_thread.shutdown()

    async def check(self) -> None:
        """Raise StoreUnavailable unless ledger and artifacts take changes now."""
        await self.ledger(self.manager.next_due_ns)
        for directory in (self._settings.ledger_dir, self._settings.artifact_dir):
            await self.disk(check_room, directory)

    async def ledger(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a call of the manager on the ledger's thread; `changed` tells that one has ended."""
        try:
            return await _on(self._ledger_thread, call, *args, **kwargs)
        finally:
            self.changed.set()

    async def output(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run work on the output of attempts, one call at a time."""
        return await _on(self._output_thread, call, *args, **kwargs)

    async def disk(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run work on files in the pool."""
        return await _on(self._disk_threads, call, *args, **kwargs)


async def _on(
    threads: ThreadPoolExecutor, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Run a call on a thread; what has begun is waited for, also when the request is cancelled."""
    work = asyncio.get_running_loop().run_in_executor(threads, partial(call, *args, **kwargs))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait([work])
        raise
