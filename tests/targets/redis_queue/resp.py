"""A client of Redis's own protocol, RESP2: https://redis.io/docs/latest/develop/reference/protocol-spec/.

Standard library only: it runs in the worker's container and in the tests.
"""

import socket
import time
from typing import Any


class Redis:
    """One connection; OSError where there is none, or no answer in time."""

    def __init__(self, host: str, port: int, timeout_s: float = 5.0) -> None:
        self._socket = socket.create_connection((host, port), timeout_s)
        self._stream = self._socket.makefile("rb")

    def __call__(self, *words: str | int) -> Any:
        """Send a command and return its reply; RuntimeError for an error."""
        encoded = [str(word).encode() for word in words]
        parts = [b"$%d\r\n%s\r\n" % (len(word), word) for word in encoded]
        self._socket.sendall(b"*%d\r\n%s" % (len(parts), b"".join(parts)))
        return self._reply()

    def close(self) -> None:
        """Close the connection."""
        self._stream.close()
        self._socket.close()

    def _reply(self) -> Any:
        line = self._stream.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("Redis closed the connection")
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            raise RuntimeError(rest.decode())
        if kind == b":":
            return int(rest)
        if kind == b"+":
            return rest.decode()
        size = int(rest)
        if size < 0:
            return None
        if kind == b"$":
            return self._stream.read(size + 2)[:-2].decode()
        return [self._reply() for _ in range(size)]


def canary(host: str, port: int, timeout_s: float) -> dict[str, Any]:
    """Say PING on a new connection; tell how that ended (ok, timeout, reset, ...) and when."""
    began = time.monotonic()
    outcome = "error"
    try:
        asked = Redis(host, port, timeout_s)
        try:
            outcome = "ok" if asked("PING") == "PONG" else "error"
        finally:
            asked.close()
    except TimeoutError:
        outcome = "timeout"
    except ConnectionRefusedError:
        outcome = "refused"
    except ConnectionResetError:
        outcome = "reset"
    except ConnectionError:
        outcome = "closed"
    except (OSError, RuntimeError):
        outcome = "error"
    return {"outcome": outcome, "elapsed_s": round(time.monotonic() - began, 6)}
