"""HTTP as `flashruntime serve` speaks it: heads of requests are bounded in size and in time.

The server hands a request on only when its head is whole, so that no layer of the application can
bound it. For a bare uvicorn: `--http flashruntime.service.wire:BoundedHttp`.
"""

from asyncio import TimerHandle, Transport
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD_BYTES = 64 * 1024
HEAD_S = 20.0


class BoundedHttp(HttpToolsProtocol):
    """Closes a connection whose head grows too large, or does not come.

    What counts is data that completes nothing: a head or trailer goes on, and the parser keeps it.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._kept_bytes = 0
        self._in_head = True
        self._head_due: TimerHandle | None = None

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """Give a new connection time for its first head."""
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clock."""
        self._head_came()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what came, and bound what is kept of it."""
        self._kept_bytes += len(data)
        super().data_received(data)
        if self._kept_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response(f"The head has more than {MAX_HEAD_BYTES} bytes.")
        elif self._in_head and self._head_due is None and not self.transport.is_closing():
            self._expect_head()

    def on_message_begin(self) -> None:
        """Begin a head."""
        self._kept_bytes = 0
        self._in_head = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """End a head; the application bounds what follows."""
        self._kept_bytes = 0
        self._head_came()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Pass on a piece of the body."""
        self._kept_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End a request."""
        self._kept_bytes = 0
        super().on_message_complete()

    def _expect_head(self) -> None:
        self._head_due = self.loop.call_later(HEAD_S, self._give_up)

    def _head_came(self) -> None:
        self._in_head = False
        if self._head_due is not None:
            self._head_due.cancel()
            self._head_due = None

    def _give_up(self) -> None:
        self._head_due = None
        self.transport.close()
