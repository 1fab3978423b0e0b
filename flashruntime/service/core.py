"""The parts of a coordinator and the threads that they run on.

Work on the ledger runs in groups that share a commit, on a thread of its own but for quick calls;
work on files runs in a small pool. So the event loop hardly ever waits.
"""

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
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


@dataclass(slots=True)
class Care:
    """How the stored bytes are; `work` wakes those who delete."""

    damaged: int = 0
    scrubbed_bytes: int = 0
    scrub_passes: int = 0
    work: Signal = field(default_factory=Signal)


class Core:
    """One coordinator. `open` and `close` frame its life; `closing` ends every wait."""

    manager: LeaseManager
    small: SmallPuts
    _store: LeaseStore

    def __init__(self, settings: CoordinatorSettings, clock: Clock) -> None:
        self._settings = settings
        self.care = Care()
        self._before_closing: list[Callable[[], None]] = []
        self._checking: asyncio.Task[None] | None = None
        self.clock = clock
        self._judge = judge = Judge(clock.monotonic_ns)
        self._commits = Commits(judge.keep, self._lose)
        # Without a write-ahead log a commit waits for readers.
        self._commits.commits_here = settings.ledger_journal is Journal.WAL
        self._output_thread = ThreadPoolExecutor(1, "output")
        self._disk_threads = ThreadPoolExecutor(DISK_THREADS, "disk")
        self._scrub_thread = ThreadPoolExecutor(1, "scrub", _yield_to_others)
        keeping = settings.keeping
        self.blobs = BlobStore(
            settings.artifact_dir, settings.max_artifact_bytes, keeping.max_store_bytes
        )
        self.logs = AttemptLogs(settings.ledger_dir / "logs", keeping.max_log_bytes)
        self.judge = judge.decide
        self.work = Signal()
        self.closing = asyncio.Event()
        self.changed = asyncio.Event()
        self.on_commit: Callable[[float], None] | None = None

    @property
    def settings(self) -> CoordinatorSettings:
        """What this coordinator was started with."""
        return self._settings

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
            store.on_commit = self.on_commit
            self.blobs.open()
            undo.callback(self.blobs.close)
            manager = LeaseManager(store, self.clock, self.judge)
            manager.max_job_bytes = self._settings.keeping.max_job_bytes or None
            manager.start()
            self.small = SmallPuts(manager, self.blobs)
            self.small.restore()
            undo.pop_all()
        self._store = self._commits.store = store
        self.manager = manager
        self.care.damaged = len(manager.damages())

    def _lose(self) -> None:
        """Let nothing in memory run ahead of a ledger that has not kept the last changes."""
        self._judge.lose()
        if self._commits.store is not None:
            self.manager.changes_lost()

    async def close(self) -> None:
        """Let running work end, then release artifacts and ledger."""
        self.stop_scrubbing()
        for threads in (self._scrub_thread, self._output_thread, self._disk_threads):
            threads.shutdown()
        self.blobs.close()
        await self._commits.run(self._store.close, alone=True)
        self._commits.close()

    async def check(self) -> None:
        """Raise StoreUnavailable unless ledger and artifacts take changes now; all ask at once."""
        if self._checking is None or self._checking.done():
            self._checking = asyncio.create_task(self._check())
        await asyncio.shield(self._checking)

    async def _check(self) -> None:
        await self.ledger(self.manager.next_due_ns)
        for directory in (self._settings.ledger_dir, self._settings.artifact_dir):
            await self.disk(check_room, directory)

    async def count_damage(self) -> None:
        """Count anew how many blobs are damaged, without those that nobody needs any more."""
        damaged = await self.ledger(self.manager.damages)
        self.care.damaged = len(damaged)
        await self.scrub(self.blobs.clear_quarantine, frozenset(damaged))

    def stop_scrubbing(self) -> None:
        """End long work on the scrub thread."""
        for stop in self._before_closing:
            stop()

    def before_closing(self, stop: Callable[[], None]) -> None:
        """Have `stop` called when work on the scrub thread must end."""
        self._before_closing.append(stop)

    async def scrub(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run work on files that can wait, one call at a time, after everything else."""
        return await _on(self._scrub_thread, call, *args, **kwargs)

    async def ledger(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a call of the manager; its changes are on disk when it returns.

        `changed` tells that one has ended.
        """
        quick = getattr(call, "quick", False)
        try:
            return await self._commits.run(partial(call, *args, **kwargs), quick=quick)
        finally:
            self.changed.set()

    async def alone(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a call on the ledger's thread, which sees only what is on disk already."""
        try:
            return await self._commits.run(partial(call, *args, **kwargs), alone=True)
        finally:
            self.changed.set()

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


def _yield_to_others() -> None:
    """Give this thread the lowest share of processor time."""
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)


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
