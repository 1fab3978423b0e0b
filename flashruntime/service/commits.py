"""The ledger's thread: calls that arrive while a commit runs share the next one.

A call is answered once its group is on disk. If the group cannot be kept, none of its calls has
happened, and each raises StoreUnavailable.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, TypeVar

from flashruntime.errors import StoreUnavailable
from flashruntime.leases.store import LeaseStore

T = TypeVar("T")
MAX_GROUP = 256


class Commits:
    """Runs calls on one thread, in the order in which they came.

    A call `alone` is in no group; before `store` is set there are only such. `kept` or `lost` is
    called after each group, on the same thread.
    """

    def __init__(self, kept: Callable[[], None], lost: Callable[[], None]) -> None:
        self._kept = kept
        self._lost = lost
        self.store: LeaseStore | None = None
        self._waiting: SimpleQueue[_Call | None] = SimpleQueue()
        self._held: list[_Call | None] = []
        self._thread = Thread(target=self._run, name="ledger", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    async def run(self, call: Callable[[], T], *, alone: bool = False) -> T:
        """Run a call; what has begun is waited for, also when the request is cancelled."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        asked = _Call(call, answer, alone)
        self._waiting.put(asked)
        try:
            return await answer
        except asyncio.CancelledError:
            if not asked.delivered:
                asked.end = loop.create_future()
                await asked.end
            raise

    def close(self) -> None:
        """Let the calls that wait end, then the thread."""
        self._waiting.put(None)
        self._thread.join()

    def _run(self) -> None:
        while group := self._next_group():
            self._run_group(group)
            with suppress(RuntimeError):  # (the loop has ended, and nobody waits any more)
                group[0].answer.get_loop().call_soon_threadsafe(_deliver, group)

    def _next_group(self) -> "list[_Call]":
        """Return the calls that share the next commit; none of them at the end."""
        group: list[_Call] = []
        while len(group) < MAX_GROUP:
            try:
                call = self._held.pop() if self._held else self._waiting.get(block=not group)
            except Empty:
                break
            if call is None or (call.alone and group):
                self._held.append(call)
                break
            group.append(call)
            if call.alone:
                break
        return group

    def _run_group(self, group: "list[_Call]") -> None:
        """Run calls; where the store refuses their group, that is the answer to each."""
        if group[0].alone:
            group[0].work()
            return
        try:
            if self.store is None:
                raise StoreUnavailable("the ledger is not open")
            with self.store.group():
                for call in group:
                    call.work()
            self._kept()
        except Exception as error:  # noqa: BLE001 (thread boundary: the askers raise it)
            self._lost()
            for call in group:
                call.refuse(error)


class _Call:
    """A call, then its outcome."""

    __slots__ = ("_error", "_run", "_value", "alone", "answer", "delivered", "end")

    def __init__(self, run: Callable[[], Any], answer: asyncio.Future[Any], alone: bool) -> None:
        self._run = run
        self._value: Any = None
        self._error: BaseException | None = None
        self.answer = answer
        self.alone = alone
        self.delivered = False
        self.end: asyncio.Future[None] | None = None

    def work(self) -> None:
        """Run the call and keep what it returns or raises."""
        try:
            self._value = self._run()
        except BaseException as error:  # noqa: BLE001 (thread boundary: the asker raises it)
            self._error = error

    def refuse(self, error: Exception) -> None:
        """Answer that the group was not kept, whatever the call came to."""
        unavailable = isinstance(error, StoreUnavailable)
        self._error = StoreUnavailable(str(error)) if unavailable else error

    def deliver(self) -> None:
        """Give the outcome to the asker, or tell one who was cancelled that there is one."""
        self.delivered = True
        if self.answer.cancelled():
            if self.end is not None and not self.end.done():
                self.end.set_result(None)
        elif self._error is None:
            self.answer.set_result(self._value)
        else:
            self.answer.set_exception(self._error)


def _deliver(group: list[_Call]) -> None:
    for call in group:
        call.deliver()
