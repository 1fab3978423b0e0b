"""One HTTP request on a raw socket, on a connection of its own, and what became of it.

Argument: {"host", "port", "path", "timeout_s"}. Answer: {"t_ns", "outcome", "status",
"connect_s", "elapsed_s"} with outcome `ok` (a status line came), `timeout`, `reset` (RST),
`refused`, `closed` (an end without an answer) or `error`.
"""

import json
import socket
import sys
import time
from typing import Any


def exchange(request: dict[str, Any], connected: list[float]) -> bytes:
    """Send the request and return the answer's first bytes."""
    address = (request["host"], request["port"])
    deadline = time.monotonic() + request["timeout_s"]
    with socket.create_connection(address, timeout=request["timeout_s"]) as connection:
        connected.append(time.monotonic())
        head = f"GET {request['path']} HTTP/1.1\r\nHost: probe\r\nConnection: close\r\n\r\n"
        connection.sendall(head.encode())
        answer = b""
        while b"\r\n" not in answer:
            connection.settimeout(max(deadline - time.monotonic(), 0.001))
            block = connection.recv(4096)
            if not block:
                break
            answer += block
        return answer


def probe(request: dict[str, Any]) -> dict[str, Any]:
    """Classify one exchange."""
    start, connected, status = time.monotonic(), list[float](), None
    try:
        answer = exchange(request, connected)
        words = answer.split(b"\r\n")[0].split()
        status = int(words[1]) if answer.startswith(b"HTTP/1.") and len(words) > 1 else None
        outcome = "ok" if status is not None else "closed"
    except TimeoutError:
        outcome = "timeout"
    except (ConnectionResetError, BrokenPipeError):
        outcome = "reset"
    except ConnectionRefusedError:
        outcome = "refused"
    except OSError:
        outcome = "error"
    return {
        "outcome": outcome,
        "status": status,
        "connect_s": round(connected[0] - start, 6) if connected else None,
        "elapsed_s": round(time.monotonic() - start, 6),
    }


def main() -> None:
    """Print one line."""
    answer = probe(json.loads(sys.argv[1]))
    sys.stdout.write(json.dumps({"t_ns": time.monotonic_ns(), **answer}) + "\n")


if __name__ == "__main__":
    main()
