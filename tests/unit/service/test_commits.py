"""Calls that share a commit: order, isolation, and one answer when nothing can be kept."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import pytest

from flashruntime.errors import NotFound, StoreUnavailable
from flashruntime.leases.memory import MemoryStore
from flashruntime.leases.record import ObjectRow
from flashruntime.service.commits import Commits


class Counted(MemoryStore):
    """A store that counts its groups and refuses to keep them while `refusing`."""

    def __init__(self) -> None:
        super().__init__()
        self.groups = 0
        self.ends: list[str] = []
        self.refusing = False

    @contextmanager
    def group(self) -> Iterator[None]:
        with super().group():
            yield
            self.groups += 1
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


def test_calls_that_wait_share_one_commit_in_their_order() -> None:
    async def steps(commits: Commits, store: Counted, gate: threading.Event) -> None:
        order: list[int] = []
        calls = [
            asyncio.create_task(commits.run(lambda n=n: order.append(n) or store.put(f"k{n}")))
            for n in range(5)
        ]
        await asyncio.sleep(0)
        gate.set()
        assert await asyncio.gather(*calls) == [f"k{n}" for n in range(5)]
        assert order == list(range(5))
        assert (store.groups, store.ends) == (1, ["kept"])

    drive(steps)


def test_a_call_that_raises_is_alone_in_that() -> None:
    async def steps(commits: Commits, store: Counted, gate: threading.Event) -> None:
        def fail() -> None:
            with store.transaction() as tx:
                tx.put_object(ObjectRow("half", "a", 1))
                raise NotFound("no such thing")

        calls = [asyncio.create_task(commits.run(lambda: store.put("a")))]
        calls.append(asyncio.create_task(commits.run(fail)))
        calls.append(asyncio.create_task(commits.run(lambda: store.put("b"))))
        await asyncio.sleep(0)
        gate.set()
        first, second, third = await asyncio.gather(*calls, return_exceptions=True)
        assert (first, third) == ("a", "b")
        assert isinstance(second, NotFound)
        assert store.keys() == ["a", "b"]

    drive(steps)


def test_a_group_that_is_not_kept_fails_for_all_whatever_they_came_to() -> None:
    """An answer may rest on a neighbour's change that never happened."""

    async def steps(commits: Commits, store: Counted, gate: threading.Event) -> None:
        def fail() -> None:
            raise NotFound("seen in the lost group")

        store.refusing = True
        calls = [asyncio.create_task(commits.run(lambda: store.put("a")))]
        calls.append(asyncio.create_task(commits.run(fail)))
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
