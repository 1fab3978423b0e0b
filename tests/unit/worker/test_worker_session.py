"""The worker's side of a session: opened again whenever it ends, until the worker leaves."""

import queue
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from flashruntime.errors import CoordinatorUnreachable, Superseded
from flashruntime.protocol.nodes import SessionEnding, SessionLine, SessionNews
from flashruntime.worker.ports import Coordinator
from flashruntime.worker.session import Session

PATIENCE_S = 10.0
OPEN = SessionLine(news=SessionNews.OPEN)


class Lines:
    """A stream whose lines the test says; None ends it, an error breaks it."""

    def __init__(self) -> None:
        self.said: queue.SimpleQueue[SessionLine | Exception | None] = queue.SimpleQueue()
        self.said.put(OPEN)

    def __iter__(self) -> Iterator[SessionLine]:
        while (line := self.said.get(timeout=PATIENCE_S)) is not None:
            if isinstance(line, Exception):
                raise line
            yield line

    def interrupt(self) -> None:
        self.said.put(None)


class Streams:
    """A coordinator that has sessions alone."""

    def __init__(self, *refusals: Exception) -> None:
        self.refusals = list(refusals)
        self.opened: queue.SimpleQueue[tuple[str, Lines]] = queue.SimpleQueue()

    @contextmanager
    def connect(self, timeout_s: float) -> Iterator[Coordinator]:
        assert timeout_s == 3.0
        yield cast(Coordinator, self)

    @contextmanager
    def session(self, node_id: str, session_id: str) -> Iterator[Any]:
        assert node_id == "n"
        if self.refusals:
            raise self.refusals.pop(0)
        lines = Lines()
        self.opened.put((session_id, lines))
        yield lines

    def next(self) -> tuple[str, Lines]:
        return self.opened.get(timeout=PATIENCE_S)


def session_of(streams: Streams, lost: "queue.SimpleQueue[str] | None" = None) -> Session:
    gone: queue.SimpleQueue[str] = queue.SimpleQueue() if lost is None else lost
    return Session("n", streams.connect, gone.put, silence_s=3.0)


def test_a_stream_that_ends_or_breaks_is_opened_again() -> None:
    streams = Streams(CoordinatorUnreachable("not yet"))
    with session_of(streams) as session:
        session.follow("s1")
        for end in (None, CoordinatorUnreachable("silent"), RuntimeError("unforeseen")):
            name, lines = streams.next()
            lines.said.put(end)
            assert name == "s1"
        assert streams.next()[0] == "s1"


def test_a_session_that_the_coordinator_does_not_know_is_lost_and_not_opened_again() -> None:
    lost: queue.SimpleQueue[str] = queue.SimpleQueue()
    streams = Streams(Superseded("older"))
    with session_of(streams, lost) as session:
        session.follow("s1")
        assert lost.get(timeout=PATIENCE_S) == "s1"
        session.follow("s2")
        name, lines = streams.next()
        last = SessionLine(news=SessionNews.ENDED, reason=SessionEnding.SUPERSEDED)
        lines.said.put(last)
        lines.said.put(None)
        assert (name, lost.get(timeout=PATIENCE_S)) == ("s2", "s2")
        assert streams.opened.empty()


def test_a_new_registration_takes_the_place_of_the_older_session() -> None:
    streams = Streams()
    with session_of(streams) as session:
        session.follow("s1")
        assert streams.next()[0] == "s1"
        session.follow("s2")
        assert streams.next()[0] == "s2"


def test_a_worker_that_leaves_ends_its_stream_at_once() -> None:
    streams = Streams()
    session = session_of(streams)
    with session:
        session.follow("s1")
        streams.next()
    assert not session.is_alive
