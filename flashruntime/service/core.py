"""The parts of a coordinator and the threads that they run on.

Work on the ledger runs in groups that share a commit, on a thread of its own but for quick calls;
work on files runs in a small pool. So the event loop hardly ever waits.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import ParamSpec, TypeVar

from flashruntime.clock import Clock
from flashruntime.config import CoordinatorSettings
from flashruntime.leases.journal import Journal
from flashruntime.leases.manager import LeaseManager
from flashruntime.leases.sqlite import SqliteStore
from flashruntime.leases.store import LeaseStore
from flashruntime.protocol.tasks import ArtifactRecord
from flashruntime.recovery.incidents import Judge
from flashruntime.service.attempt_logs import AttemptLogs
from flashruntime.service.blobs import BlobStore, check_room, require_writable
from flashruntime.service.commits import Commits
from flashruntime.service.small_puts import SmallPuts
from flashruntime.service.waiting import Signal

P = ParamSpec("P")
T = TypeVar("T")
DISK_THREADS = 4
DATABASE = "ledger.sqlite3"


class Core:
    """One coordinator. `open` and `close` frame its life; `closing` ends every wait."""

    manager: LeaseManager
    small: SmallPuts
    _store: LeaseStore

    def __init__(self, settings: CoordinatorSettings, clock: Clock) -> None:
        self._settings = settings
        self.clock = clock
        judge = Judge(clock.monotonic_ns)
        self._commits = Commits(judge.keep, judge.lose)
        # Without a write-ahead log a commit waits for readers.
        self._commits.commits_here = settings.ledger_journal is Journal.WAL
        self._output_thread = ThreadPoolExecutor(1, "output")
        self._disk_threads = ThreadPoolExecutor(DISK_THREADS, "disk")
        self.blobs = BlobStore(settings.artifact_dir, settings.max_artifact_bytes)
        self.logs = AttemptLogs(settings.ledger_dir / "logs")
        self.judge = judge.decide
        self.work = Signal()
        self.closing = asyncio.Event()

    async def open(self) -> None:
        """Take ledger and artifacts; every live lease gets its full time again."""
        self._commits.start()
        try:
            await self._commits.run(self._open, alone=True)
        except BaseException:
            self._commits.close()
            raise

    def _open(self) -> None:
        require_writable(self._settings.ledger_dir, "FLASHML_LEDGER_DIR")
        with ExitStack() as undo:
            path = self._settings.ledger_dir / DATABASE
            store = SqliteStore(path, journal=self._settings.ledger_journal)
            undo.callback(store.close)
            self.blobs.open()
            undo.callback(self.blobs.close)
            manager = LeaseManager(store, self.clock, self.judge)
            manager.start()
            self.small = SmallPuts(manager, self.blobs)
            self.small.restore()
            undo.pop_all()
        self._store = self._commits.store = store
        self.manager = manager

    async def close(self) -> None:
        """Let running work end, then release artifacts and ledger."""
        for threads in (self._output_thread, self._disk_threads):
            threads.shutdown()
        self.blobs.close()
        await self._commits.run(self._store.close, alone=True)
        self._commits.close()

    async def check(self) -> None:
        """Raise StoreUnavailable unless ledger and artifacts take changes now."""
        await self.ledger(self.manager.next_due_ns)
        for directory in (self._settings.ledger_dir, self._settings.artifact_dir):
            await self.disk(check_room, directory)

    async def ledger(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a call of the manager; its changes are on disk when it returns."""
        quick = getattr(call, "quick", False)
        return await self._commits.run(partial(call, *args, **kwargs), quick=quick)

    async def put_small(self, key: str, data: bytes, sha256: str | None) -> ArtifactRecord:
        """Store a small object; errors as of a large one."""
        put = self.small.upload(key, data, sha256)
        return await self._commits.run(put.record, quick=True, before_commit=put.place)

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
