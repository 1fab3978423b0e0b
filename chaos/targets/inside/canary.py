"""Requests on raw sockets that read each answer to its end, on a connection that is kept.

Request: {"host", "port", "path", "timeout_s", "pad_bytes", "times"}. Answer: {"canaries": [...]},
each {"outcome", "elapsed_s", "sent_bytes", "received_bytes", "reads"}; outcomes as in `probe`.
"""

import re
import socket
import time
from typing import Any

LENGTH = re.compile(rb"\r\ncontent-length: *([0-9]+)", re.IGNORECASE)
LINE_BYTES = 4000


def padding(size: int) -> str:
    """Return headers of about that size."""
    whole, rest = divmod(size, LINE_BYTES)
    sizes = [LINE_BYTES] * whole + [rest] * (rest > 0)
    return "".join(f"X-Pad-{number}: {'x' * size}\r\n" for number, size in enumerate(sizes))


def is_whole(received: bytes) -> bool:
    """Whether this is an answer with all of its body, as far as its head tells."""
    head, end, body = received.partition(b"\r\n\r\n")
    length = LENGTH.search(head)
    return bool(end) and length is not None and len(body) >= int(length[1])


def exchange(request: dict[str, Any], counts: dict[str, int]) -> bytes:
    """Send the request and return what came, counting bytes and pieces as they pass."""
    deadline = time.monotonic() + request["timeout_s"]
    address = (request["host"], request["port"])
    with socket.create_connection(address, timeout=request["timeout_s"]) as connection:
        head = f"GET {request['path']} HTTP/1.1\r\nHost: {request['host']}\r\n"
        data = f"{head}{padding(request['pad_bytes'])}\r\n".encode()
        connection.sendall(data)
        counts["sent_bytes"] = len(data)
        received = b""
        while not is_whole(received):
            connection.settimeout(max(deadline - time.monotonic(), 0.001))
            block = connection.recv(4096)
            if not block:
                break
            received += block
            counts["received_bytes"] = len(received)
            counts["reads"] += 1
        return received


def once(request: dict[str, Any]) -> dict[str, Any]:
    """Classify one exchange."""
    start = time.monotonic()
    counts = {"sent_bytes": 0, "received_bytes": 0, "reads": 0}
    try:
        outcome = "ok" if exchange(request, counts).startswith(b"HTTP/1.") else "closed"
    except TimeoutError:
        outcome = "timeout"
    except (ConnectionResetError, BrokenPipeError):
        outcome = "reset"
    except ConnectionRefusedError:
        outcome = "refused"
    except OSError:
        outcome = "error"
    return {"outcome": outcome, "elapsed_s": round(time.monotonic() - start, 6), **counts}


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Make as many requests as asked for, one after the other."""
    return {"canaries": [once(request) for _ in range(request["times"])]}
