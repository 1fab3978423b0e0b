"""Who is connected: each worker holds one streamed answer open, and when it ends, that is news.

The leases of a session that ended become claimable after a grace; a session that is back within
it, or any heartbeat of a lease, keeps them.
"""

import asyncio
import logging
from dataclasses import dataclass

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from flashruntime.errors import FlashError
from flashruntime.leases.nodes import Link
from flashruntime.leases.sessions import SessionEnd
from flashruntime.protocol.nodes import (
    NodeDuty,
    NodeOrder,
    NodeRecord,
    NodeRegistered,
    NodeRegistration,
    SessionEnding,
    SessionLine,
    SessionNews,
)
from flashruntime.service.core import Core
from flashruntime.service.waiting import first_of

log = logging.getLogger(__name__)
NS_PER_S = 1_000_000_000
RETRY_S = 0.25


@dataclass(frozen=True, slots=True)
class Timing:
    """How often a stream says that it is alive, and the graces after its end.

    Sessions that end within `window_s` of one another have `together_s`: a proxy restarts.
    """

    keepalive_s: float = 5.0
    grace_s: float = 0.05
    window_s: float = 0.05
    together_s: float = 1.0


@dataclass(slots=True)
class _Loss:
    """A session that ended and is not back yet; its leases lapse at `due_s` of the loop."""

    end: SessionEnd
    at_s: float
    due_s: float


class Sessions:
    """The open streams; used on the event loop alone."""

    def __init__(self, core: Core, timing: Timing = Timing()) -> None:
        self.timing = timing
        self._core = core
        self._open: dict[str, SessionStream] = {}
        self._losses: dict[str, _Loss] = {}
        self._newest: _Loss | None = None
        self._ended: list[SessionEnd] = []
        self._heard_ns: dict[str, int] = {}
        self._woken = asyncio.Event()
        self._telling: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[bool] | None = None

    async def register(self, registration: NodeRegistration) -> NodeRegistered:
        """Open a new session of a node; the stream of an older one ends."""
        core = self._core
        answer = await core.ledger(core.manager.register_node, registration)
        stream = self._open.get(answer.node_id)
        if stream is not None and stream.link.session_id != answer.session_id:
            stream.end(SessionEnding.SUPERSEDED)
        return answer

    async def open(self, node_id: str, session_id: str | None) -> "SessionStream":
        """Return the stream of a session; one that it had open before ends, at no cost."""
        core = self._core
        link = await core.ledger(core.manager.open_session, node_id, session_id)
        before = self._open.get(link.node_id)
        if before is not None:
            same = before.link.session_id == link.session_id
            before.end(SessionEnding.REPLACED if same else SessionEnding.SUPERSEDED)
        self._losses.pop(link.session_id, None)
        stream = SessionStream(link, self)
        self._open[link.node_id] = stream
        return stream

    async def order(self, node_id: str, order: NodeOrder) -> NodeRecord:
        """Cordon, drain or uncordon a node, and tell it so at once if it is connected."""
        core = self._core
        record = await core.ledger(core.manager.order_node, node_id, order)
        stream = self._open.get(record.node_id)
        if stream is not None:
            stream.tell(record.duty)
        return record

    def heard(self, lease_id: str) -> None:
        """Note the heartbeat of a lease, as it arrives."""
        if self._losses:
            self._heard_ns[lease_id] = self._core.clock.monotonic_ns()

    def claiming(self, node_id: str, session_id: str | None) -> None:
        """Note a claim as it arrives: a node whose session has just ended is back."""
        for loss in list(self._losses.values()):
            link = loss.end.link
            if link.node_id == node_id and session_id in {None, link.session_id}:
                del self._losses[link.session_id]

    @property
    def closing(self) -> "asyncio.Task[bool]":
        """What ends with the coordinator."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._core.closing.wait())
        return self._closing

    def ended(self, link: Link, stream: "SessionStream", reason: SessionEnding) -> None:
        """Note that a stream has ended. A coordinator that leaves loses nobody."""
        if self._open.get(link.node_id) is stream:
            del self._open[link.node_id]
        if reason is SessionEnding.REPLACED or self._core.closing.is_set():
            return
        end = SessionEnd(link, self._core.clock.monotonic_ns(), reason)
        self._ended.append(end)
        self._await_return(end)
        if self._telling is None or self._telling.done():
            self._telling = asyncio.create_task(self._tell_until_quiet())
        self._woken.set()

    def _await_return(self, end: SessionEnd) -> None:
        timing, now_s = self.timing, asyncio.get_running_loop().time()
        loss, last = _Loss(end, now_s, now_s + timing.grace_s), self._newest
        if last is not None and now_s - last.at_s <= timing.window_s:
            last.due_s = last.at_s + timing.together_s
            loss.due_s = now_s + timing.together_s
        self._losses[end.link.session_id] = self._newest = loss

    async def _tell_until_quiet(self) -> None:
        """Tell the ledger what ended, and what is lost once its grace is over."""
        loop, closing = asyncio.get_running_loop(), self._core.closing
        while (self._ended or self._losses) and not closing.is_set():
            self._woken.clear()
            now_s = loop.time()
            due = [loss for loss in self._losses.values() if loss.due_s <= now_s]
            if (self._ended or due) and not await self._tell(due):
                await first_of(closing, timeout_s=RETRY_S)
                continue
            if self._losses and not self._woken.is_set():
                next_s = min(loss.due_s for loss in self._losses.values())
                await first_of(self._woken, closing, timeout_s=max(0.0, next_s - loop.time()))

    async def _tell(self, due: "list[_Loss]") -> bool:
        """Return whether the ledger took it."""
        core, ended = self._core, tuple(self._ended)
        lost = [loss.end for loss in due]
        try:
            lapsed = await core.ledger(core.manager.end_sessions, ended, lost, dict(self._heard_ns))
        except Exception as error:  # (task boundary: a lost worker must be told of later)
            if not isinstance(error, FlashError):
                log.exception("telling of lost sessions failed", extra={"event": "session_failed"})
            return False
        del self._ended[: len(ended)]
        for loss in due:
            if self._losses.get(loss.end.link.session_id) is loss:
                del self._losses[loss.end.link.session_id]
        since_ns = min((loss.end.at_ns for loss in self._losses.values()), default=None)
        self._heard_ns = {
            lease_id: at_ns
            for lease_id, at_ns in self._heard_ns.items()
            if since_ns is not None and at_ns > since_ns
        }
        if lapsed:
            core.work.fire()
        return True


class SessionStream(Response):
    """The answer that a worker holds open: a line at once, then one every few seconds."""

    media_type = "application/x-ndjson"

    def __init__(self, link: Link, sessions: Sessions) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self.link = link
        self._sessions = sessions
        self._end: asyncio.Future[SessionEnding] = asyncio.get_running_loop().create_future()
        self._duties: asyncio.Queue[NodeDuty] = asyncio.Queue()

    def tell(self, duty: NodeDuty) -> None:
        """Say in a line of its own what the node is to do."""
        self._duties.put_nowait(duty)

    def end(self, reason: SessionEnding) -> None:
        """End it, and say why in its last line."""
        if not self._end.done():
            self._end.set_result(reason)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hold the answer open until the worker closes its connection, or `end`."""
        del scope
        gone = asyncio.ensure_future(_disconnected(receive))
        reason = SessionEnding.CLOSED
        try:
            status = self.status_code
            await send(
                {"type": "http.response.start", "status": status, "headers": self.raw_headers}
            )
            reason = await self._hold(gone, send)
        finally:
            gone.cancel()
            self._sessions.ended(self.link, self, reason)
        if reason is not SessionEnding.CLOSED:
            last = SessionLine(news=SessionNews.ENDED, reason=reason)
            await send(_body(last, more=False))

    async def _hold(self, gone: "asyncio.Future[None]", send: Send) -> SessionEnding:
        keepalive_s, closing = self._sessions.timing.keepalive_s, self._sessions.closing
        first = SessionLine(
            news=SessionNews.OPEN,
            node_id=self.link.node_id,
            session_id=self.link.session_id,
            keepalive_s=keepalive_s,
        )
        await send(_body(first))
        duty = asyncio.ensure_future(self._duties.get())
        try:
            while True:
                until = (gone, self._end, closing, duty)
                await asyncio.wait(until, timeout=keepalive_s, return_when=asyncio.FIRST_COMPLETED)
                if gone.done():
                    return SessionEnding.CLOSED
                if self._end.done():
                    return self._end.result()
                if closing.done():
                    return SessionEnding.STOPPING
                line = SessionLine(news=SessionNews.ALIVE)
                if duty.done():
                    line = SessionLine(news=SessionNews.DUTY, duty=duty.result())
                    duty = asyncio.ensure_future(self._duties.get())
                await send(_body(line))
        finally:
            duty.cancel()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _body(line: SessionLine, *, more: bool = True) -> dict[str, object]:
    data = line.model_dump_json(exclude_none=True).encode() + b"\n"
    return {"type": "http.response.body", "body": data, "more_body": more}
