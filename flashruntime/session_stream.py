"""The lines of a session's stream, as a client reads them."""

import socket
from collections.abc import Iterator
from contextlib import suppress

import httpx
from pydantic import ValidationError

from flashruntime.errors import CoordinatorUnreachable
from flashruntime.protocol.nodes import SessionLine


class SessionLines:
    """Iterates over what the coordinator says; ends with the stream."""

    def __init__(self, answer: httpx.Response) -> None:
        self._answer = answer

    def __iter__(self) -> Iterator[SessionLine]:
        for text in self._answer.iter_lines():
            try:
                yield SessionLine.model_validate_json(text)
            except ValidationError as error:
                raise CoordinatorUnreachable(
                    f"the stream of a session has the line {text[:80]!r}; is this a coordinator of "
                    f"the same version? ({error})"
                ) from error

    def interrupt(self) -> None:
        """End the reading, from another thread."""
        stream = self._answer.extensions.get("network_stream")
        connection = None if stream is None else stream.get_extra_info("socket")
        if isinstance(connection, socket.socket):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
