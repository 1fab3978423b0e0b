"""The parts of a coordinator and the threads that they run on.

All work on the ledger runs on one thread, all work on files in a small pool, so that the event
loop only ever waits.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from flashruntime.clock import Clock
from flashruntime.config import CoordinatorSettings
from flashruntime.leases.manager import LeaseManager
from flashruntime.leases.sqlite import SqliteStore
from flashruntime.service.attempt_logs import AttemptLogs
from flashruntime.service.blobs import BlobStore, require_writable
from flashruntime.service.waiting import Signal

P = ParamSpec("P")
T = TypeVar("T")
DISK_THREADS = 4
DATABASE = "ledger.sqlite3"


class Core:
    """One coordinator. `open` and `close` frame its life; `closing` ends every wait."""

    def __init__(self, settings: CoordinatorSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._ledger_thread = ThreadPoolExecutor(1, "ledger")
        self._output_thread = ThreadPoolExecutor(1, "attempt-logs")
        self._disk_threads = ThreadPoolExecutor(DISK_THREADS, "disk")
        self.blobs = BlobStore(settings.artifact_dir, settings.max_artifact_bytes)
        self.logs = AttemptLogs(settings.ledger_dir / "logs")
        self.work = Signal()
        self.closing = asyncio.Event()

    async def open(self) -> None:
        """Take ledger and artifacts; every live lease gets its full time again."""
        await self._on(self._ledger_thread, self._open)

    def _open(self) -> None:
        require_writable(self._settings.ledger_dir, "FLASHML_LEDGER_DIR")
        store = SqliteStore(self._settings.ledger_dir / DATABASE)
        try:
            self.blobs.open()
            self._store = store
            self.manager = LeaseManager(store, self._clock)
            self.manager.start()
        except BaseException:
            store.close()
            raise

    async def close(self) -> None:
        """End what runs, then release ledger and artifacts."""
        await self._on(self._ledger_thread, self._store.close)
        for threads in (self._ledger_thread, self._output_thread, self._disk_threads):
            threads.shutdown()
        self.blobs.close()

    async def ledger(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a call of the manager on the ledger's thread."""
        return await self._on(self._ledger_thread, call, *args, **kwargs)

    async def output(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run work on the output of attempts on its own thread."""
        return await self._on(self._output_thread, call, *args, **kwargs)

    async def disk(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run work on files in the pool."""
        return await self._on(self._disk_threads, call, *args, **kwargs)

    async def _on(
        self, threads: ThreadPoolExecutor, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(threads, lambda: call(*args, **kwargs))
