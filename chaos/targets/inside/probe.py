"""One HTTP request on a raw socket, on a connection of its own, and what became of it.

Request: {"host", "port", "path", "timeout_s"}. Answer: {"outcome", "elapsed_s"} with outcome `ok`
(a status line came), `timeout`, `reset` (RST), `refused`, `closed` (ended unanswered) or `error`.
"""

import socket
import time
from typing import Any


def exchange(request: dict[str, Any]) -> bytes:
    """Send the request and return the answer's first bytes."""
    address = (request["host"], request["port"])
    deadline = time.monotonic() + request["timeout_s"]
    with socket.create_connection(address, timeout=request["timeout_s"]) as connection:
        head = f"GET {request['path']} HTTP/1.1\r\nHost: probe\r\nConnection: close\r\n\r\n"
        connection.sendall(head.encode())
        received = b""
        while b"\r\n" not in received:
            connection.settimeout(max(deadline - time.monotonic(), 0.001))
            block = connection.recv(4096)
            if not block:
                break
            received += block
        return received


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Classify one exchange."""
    start = time.monotonic()
    try:
        outcome = "ok" if exchange(request).startswith(b"HTTP/1.") else "closed"
    except TimeoutError:
        outcome = "timeout"
    except (ConnectionResetError, BrokenPipeError):
        outcome = "reset"
    except ConnectionRefusedError:
        outcome = "refused"
    except OSError:
        outcome = "error"
    return {"outcome": outcome, "elapsed_s": round(time.monotonic() - start, 6)}
