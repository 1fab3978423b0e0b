"""Calls to the ledger: those that arrive while a commit runs share the next one.

A call is answered once its group is on disk. If the group cannot be kept, none of its calls has
happened, and each raises StoreUnavailable. Quick calls run between two requests on the event
loop, and commit there while commits take a fraction of a millisecond, as on a fast disk: to hand
one over to the thread would take as long. All else runs on the thread.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, suppress
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

from flashruntime.errors import StoreUnavailable
from flashruntime.leases.store import LeaseStore

T = TypeVar("T")
Work = Callable[[], None]
MAX_GROUP = 64
SLOW_S = 0.002
PAUSE_S = 1.0
LONGEST_PAUSE_S = 64.0
STOPPED = "the coordinator has stopped; ask the one that follows"


class Commits:
    """Runs calls in the order in which they came, one group at a time; used on one event loop.

    A call `alone` is in no group; before `store` is set there are only such. `kept` or `lost` is
    called after each group. Only where `commits_here` is set, a commit can be on the event loop.
    """

    def __init__(self, kept: Work, lost: Work) -> None:
        self._kept = kept
        self._lost = lost
        self.store: LeaseStore | None = None
        self.commits_here = False
        self._waiting: deque[_Call] = deque()
        self._busy = False
        self._is_closed = False
        self._called = False
        self._seen = 0
        self._crowded = False
        self._elsewhere_until_s = 0.0
        self._pause_s = PAUSE_S
        self._work: SimpleQueue[Work | None] = SimpleQueue()
        self._thread = Thread(target=self._serve, name="ledger", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Let the work that was begun end, then the thread; what waits still is refused."""
        self._is_closed = True
        self._work.put(None)
        self._thread.join()
        while self._waiting:
            call = self._waiting.popleft()
            call.refuse(StoreUnavailable(STOPPED))
            call.deliver()

    async def run(
        self,
        call: Callable[[], T],
        *,
        alone: bool = False,
        quick: bool = False,
        before_commit: Work | None = None,
    ) -> T:
        """Run a call; what has begun is waited for, also when the request is cancelled.

        `before_commit` runs after a call that succeeded; if it raises, that is the answer, and the
        rest of the group runs once more, so a call may run twice: nothing of the first time stays.
        """
        if self._is_closed:
            raise StoreUnavailable(STOPPED)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        asked = _Call(call, answer, before_commit)
        asked.alone, asked.quick = alone, quick
        self._waiting.append(asked)
        if not self._busy and not self._called:
            self._called = True
            loop.call_soon(self._turn)
        try:
            return await answer
        except asyncio.CancelledError:
            if not asked.delivered:
                asked.end = loop.create_future()
                await asked.end
            raise

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            work()

    def _turn(self) -> None:
        """Begin the next groups once no more calls come in, until one is on the thread."""
        if self._crowded and self._seen < len(self._waiting) < MAX_GROUP:
            self._seen = len(self._waiting)
            asyncio.get_running_loop().call_soon(self._turn)
            return
        self._called, self._seen = False, 0
        while self._waiting and not self._busy:
            group = self._next_group()
            if group[0].quick and self._run_here(group):
                continue
            self._hand_over(group, partial(self._run_group, group))

    def _next_group(self) -> "list[_Call]":
        """Return calls that may share a commit: only quick ones, or whatever came."""
        group = [self._waiting.popleft()]
        while self._waiting and len(group) < MAX_GROUP and not group[0].alone:
            following = self._waiting[0]
            if following.alone or (group[0].quick and not following.quick):
                break
            group.append(self._waiting.popleft())
        self._crowded = len(group) > 1
        return group

    def _run_here(self, group: "list[_Call]") -> bool:
        """Run quick calls; False, and nothing done, where the store would have to wait."""
        if self.store is None:
            return False
        opened = self.store.group(wait=False)
        try:
            changed = opened.__enter__()
        except Exception:  # noqa: BLE001 (the thread finds it again, and answers)
            return False
        for call in group:
            call.work()
        if changed():
            self._keep(opened, group)
        else:
            self._finish(opened, group)
            _deliver(group)
        return True

    def _keep(
        self, opened: "AbstractContextManager[Callable[[], bool]]", group: "list[_Call]"
    ) -> None:
        """Commit here, or on the thread for a while after a commit that was slow."""
        began_s = time.monotonic()
        if not self.commits_here or began_s < self._elsewhere_until_s:
            self._hand_over(group, partial(self._finish, opened, group))
            return
        self._finish(opened, group)
        _deliver(group)
        ended_s = time.monotonic()
        if ended_s - began_s > SLOW_S:
            self._elsewhere_until_s = ended_s + self._pause_s
            self._pause_s = min(LONGEST_PAUSE_S, 2 * self._pause_s)
        else:
            self._pause_s = max(PAUSE_S, self._pause_s * 0.99)

    def _hand_over(self, group: "list[_Call]", work: Work) -> None:
        self._busy = True
        loop = asyncio.get_running_loop()

        def work_and_tell() -> None:
            work()
            with suppress(RuntimeError):  # (the loop has ended, and nobody waits any more)
                loop.call_soon_threadsafe(self._handed_back, group)

        self._work.put(work_and_tell)

    def _handed_back(self, group: "list[_Call]") -> None:
        self._busy = False
        _deliver(group)
        if self._waiting:
            self._called = True
            self._turn()

    def _run_group(self, group: "list[_Call]") -> None:
        """Run calls, on the thread."""
        if group[0].alone:
            group[0].work()
            return
        try:
            if self.store is None:
                raise StoreUnavailable("the ledger is not open")
            opened = self.store.group()
            opened.__enter__()
        except Exception as error:  # noqa: BLE001 (thread boundary: the askers raise it)
            self._refuse(group, error)
            return
        for call in group:
            call.work()
        self._finish(opened, group)

    def _finish(
        self, opened: "AbstractContextManager[Callable[[], bool]]", group: "list[_Call]"
    ) -> None:
        """Keep a group; where the store refuses, that is the answer to each of its calls."""
        try:
            with ExitStack() as stack:
                stack.push(opened)
                prepared = [call for call in group if call.prepare()]
                if len(prepared) < len(group):
                    raise _Unprepared
            self._kept()
        except _Unprepared:
            self._lost()
            if prepared:
                self._run_group(prepared)
        except Exception as error:  # noqa: BLE001 (thread boundary: the askers raise it)
            self._refuse(group, error)

    def _refuse(self, group: "list[_Call]", error: Exception) -> None:
        self._lost()
        for call in group:
            call.refuse(error)


class _Unprepared(Exception):
    """A group is to be undone for calls whose preparation failed."""


class _Call:
    """A call, then its outcome."""

    __slots__ = (
        "_before_commit", "_error", "_run", "_value", "alone", "answer", "delivered", "end", "quick"
    )  # fmt: skip

    def __init__(
        self, run: Callable[[], Any], answer: asyncio.Future[Any], before_commit: Work | None
    ) -> None:
        self._run = run
        self._before_commit = before_commit
        self._value: Any = None
        self._error: BaseException | None = None
        self.answer = answer
        self.alone = False
        self.quick = False
        self.delivered = False
        self.end: asyncio.Future[None] | None = None

    def work(self) -> None:
        """Run the call and keep what it returns or raises."""
        self._value = self._error = None
        try:
            self._value = self._run()
        except BaseException as error:  # noqa: BLE001 (boundary: the asker raises it)
            self._error = error

    def prepare(self) -> bool:
        """Do what belongs before the commit of a call that succeeded; False if it failed."""
        if self._before_commit is None or self._error is not None:
            return True
        try:
            self._before_commit()
        except Exception as error:  # noqa: BLE001 (boundary: the asker raises it)
            self._error = error
            return False
        return True

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
