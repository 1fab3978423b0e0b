"""Calls that share a commit: order, isolation, and one answer when nothing can be kept."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import pytest

from flashruntime.errors import NotFound, StoreUnavailable
from flashruntime.leases.memory import MemoryStore
from flashruntime.leases.record import ObjectRow
from flashruntime.service.commits import SLOW_S, Commits


class Counted(MemoryStore):
    """A store that counts its groups and refuses to keep them while `refusing`."""

    def __init__(self) -> None:
        super().__init__()
        self.groups = 0
        self.ends: list[str] = []
        self.refusing = False
        self.held = False
        self.slow = False
        self.threads: list[str] = []

    @contextmanager
    def group(self, *, wait: bool = True) -> Iterator[Callable[[], bool]]:
        if self.held and not wait:
            raise StoreUnavailable("somebody else writes")
        with super().group(wait=wait) as changed:
            yield changed
            if self.slow:
                threading.Event().wait(2 * SLOW_S)
            self.groups += 1
            self.threads.append(threading.current_thread().name)
            if self.refusing:
                raise StoreUnavailable("no room")

    def put(self, key: str) -> str:
        with self.transaction() as tx:
            tx.put_object(ObjectRow(key, "a", 1))
        return key

    def keys(self) -> list[str]:
        with self.transaction():
            return sorted(self._objects)


def drive(steps: Callable[[Commits, Counted, threading.Event], Awaitable[None]]) -> None:
    """Run `steps` with a ledger thread that waits for the gate before its first call."""

    async def all_steps() -> None:
        store, gate = Counted(), threading.Event()
        commits = Commits(lambda: store.ends.append("kept"), lambda: store.ends.append("lost"))
        commits.store = store
        commits.start()
        first = asyncio.create_task(commits.run(gate.wait, alone=True))
        try:
            await steps(commits, store, gate)
            await first
        finally:
            gate.set()
            await asyncio.to_thread(commits.close)

    asyncio.run(all_steps())


@pytest.mark.parametrize("quick", [False, True])
def test_calls_that_wait_share_one_commit_in_their_order(quick: bool) -> None:
    async def steps(commits: Commits, store: Counted, gate: threading.Event) -> None:
        order: list[int] = []
        calls = [
            asyncio.create_task(
                commits.run(lambda n=n: order.append(n) or store.put(f"k{n}"), quick=quick)
            )
            for n in range(5)
        ]
        await asyncio.sleep(0)
        gate.set()
        assert await asyncio.gather(*calls) == [f"k{n}" for n in range(5)]
        assert order == list(range(5))
        assert (store.groups, store.ends) == (1, ["kept"])

    drive(steps)


@pytest.mark.parametrize("quick", [False, True])
def test_a_call_that_raises_is_alone_in_that(quick: bool) -> None:
    async def steps(commits: Commits, store: Counted, gate: threading.Event) -> None:
        def fail() -> None:
            with store.transaction() as tx:
                tx.put_object(ObjectRow("half", "a", 1))
                raise NotFound("no such thing")

        calls = [asyncio.create_task(commits.run(lambda: store.put("a")))]
        calls.append(asyncio.create_task(commits.run(fail, quick=quick)))
        calls.append(asyncio.create_task(commits.run(lambda: store.put("b"), quick=quick)))
        await asyncio.sleep(0)
        gate.set()
        first, second, third = await asyncio.gather(*calls, return_exceptions=True)
        assert (first, third) == ("a", "b")
        assert isinstance(second, NotFound)
        assert store.keys() == ["a", "b"]

    drive(steps)


@pytest.mark.parametrize("quick", [False, True])
def test_a_group_that_is_not_kept_fails_for_all_whatever_they_came_to(quick: bool) -> None:
    """An answer may rest on a neighbour's change that never happened."""

    async def steps(commits: Commits, store: Counted, gate: threading.Event) -> None:
        def fail() -> None:
            raise NotFound("seen in the lost group")

        store.refusing = True
        calls = [asyncio.create_task(commits.run(lambda: store.put("a"), quick=quick))]
        calls.append(asyncio.create_task(commits.run(fail, quick=quick)))
        await asyncio.sleep(0)
        gate.set()
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(answer) for answer in answers] == [StoreUnavailable] * 2
        assert answers[0] is not answers[1]
        assert (store.keys(), store.ends) == ([], ["lost"])
        store.refusing = False
        assert await commits.run(lambda: store.put("c")) == "c"
        assert store.ends == ["lost", "kept"]

    drive(steps)


def test_a_cancelled_request_waits_for_its_commit() -> None:
    async def steps(commits: Commits, store: Counted, gate: threading.Event) -> None:
        calls = [asyncio.create_task(commits.run(lambda: store.put("a")))]
        calls.append(asyncio.create_task(commits.run(lambda: store.put("b"))))
        await asyncio.sleep(0)
        calls[0].cancel()
        await asyncio.sleep(0)
        assert not calls[0].done()
        gate.set()
        with pytest.raises(asyncio.CancelledError):
            await calls[0]
        assert await calls[1] == "b"
        assert store.keys() == ["a", "b"]

    drive(steps)


def test_what_runs_alone_is_in_no_group() -> None:
    async def steps(commits: Commits, store: Counted, gate: threading.Event) -> None:
        def group() -> str:
            with store.group():
                return store.put("alone")

        calls = [asyncio.create_task(commits.run(lambda: store.put("a")))]
        calls.append(asyncio.create_task(commits.run(group, alone=True)))
        calls.append(asyncio.create_task(commits.run(lambda: store.put("b"))))
        await asyncio.sleep(0)
        gate.set()
        assert await asyncio.gather(*calls) == ["a", "alone", "b"]

    drive(steps)


def test_quick_calls_run_on_the_event_loop_and_their_commit_need_not() -> None:
    async def steps(commits: Commits, store: Counted, gate: threading.Event) -> None:
        ran: list[str] = []

        def call() -> str:
            ran.append(threading.current_thread().name)
            return store.put("a")

        gate.set()
        assert await commits.run(call, quick=True) == "a"
        assert (ran, store.threads) == (["MainThread"], ["ledger"])
        assert await commits.run(lambda: len(store.keys()), quick=True) == 1
        assert store.threads == ["ledger", "MainThread"], "with nothing to write there is no wait"
        await commits.run(call)
        assert ran == ["MainThread", "ledger"]

    drive(steps)


def test_quick_calls_wait_elsewhere_while_somebody_holds_the_file() -> None:
    """A foreign writer may hold it for seconds; the event loop must not wait for that."""

    async def steps(commits: Commits, store: Counted, gate: threading.Event) -> None:
        gate.set()
        store.held = True
        assert await commits.run(lambda: threading.current_thread().name, quick=True) == "ledger"

    drive(steps)


def test_what_precedes_a_commit_takes_nobody_along_if_it_fails() -> None:
    async def steps(commits: Commits, store: Counted, gate: threading.Event) -> None:
        placed: list[str] = []

        def refuse() -> None:
            placed.append(threading.current_thread().name)
            raise StoreUnavailable("no room for files")

        def fail() -> None:
            raise NotFound("needs no file")

        def found() -> list[str]:
            if "b" in store.keys():  # noqa: SIM118 (a method of the store)
                raise NotFound("saw what never happened")
            return store.keys()

        calls = [
            asyncio.create_task(commits.run(lambda: store.put("a"), quick=True)),
            asyncio.create_task(
                commits.run(lambda: store.put("b"), quick=True, before_commit=refuse)
            ),
            asyncio.create_task(commits.run(lambda: store.put("c"), quick=True)),
            asyncio.create_task(commits.run(found, quick=True)),
        ]
        await asyncio.sleep(0)
        gate.set()
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert [str(answer) for answer in answers] == ["a", "no room for files", "c", "['a', 'c']"]
        assert (store.keys(), placed) == (["a", "c"], ["ledger"])
        assert store.ends == ["lost", "kept"]
        with pytest.raises(NotFound):
            await commits.run(fail, quick=True, before_commit=refuse)
        assert placed == ["ledger"]

    drive(steps)


def test_commits_leave_the_event_loop_after_one_that_was_slow() -> None:
    """As on a disk that takes its time: one slow commit a while is all that the loop waits for."""

    async def steps(commits: Commits, store: Counted, gate: threading.Event) -> None:
        gate.set()
        commits.commits_here = True
        for name in ("a", "b"):
            await commits.run(lambda name=name: store.put(name), quick=True)
        store.slow = True
        for name in ("c", "d"):
            await commits.run(lambda name=name: store.put(name), quick=True)
        assert store.threads == ["MainThread", "MainThread", "MainThread", "ledger"]
        assert store.keys() == ["a", "b", "c", "d"]

    drive(steps)


def test_a_call_that_comes_after_the_end_is_refused_and_waits_for_nothing() -> None:
    async def ask() -> None:
        commits = Commits(lambda: None, lambda: None)
        commits.store = Counted()
        commits.start()
        commits.close()
        with pytest.raises(StoreUnavailable, match="has stopped"):
            await asyncio.wait_for(commits.run(lambda: None), 5)

    asyncio.run(ask())
