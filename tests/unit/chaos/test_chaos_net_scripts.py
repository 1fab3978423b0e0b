"""Canaries and packet filters as they run beside a target, and what is read of an engine's log."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from chaos.targets.inside import canary, packets
from chaos.targets.logs import parsed

RULES = """-P INPUT ACCEPT
-N fr-0a1b2c3d-11111111
-N fr-ffffffff-22222222
-A INPUT ! -i lo -j fr-0a1b2c3d-11111111
-A OUTPUT ! -o lo -j fr-ffffffff-22222222
-A fr-0a1b2c3d-11111111
-A fr-0a1b2c3d-11111111 -j DROP
"""
LISTING = """Chain fr-0a1b2c3d-11111111 (1 references)
    pkts      bytes target     prot opt in     out     source               destination
      12      840            0    --  *      *       0.0.0.0/0            0.0.0.0/0
       3      252 DROP       0    --  *      *       0.0.0.0/0            0.0.0.0/0  statistic
"""
HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n"


@contextmanager
def server(*pieces: bytes, hold: bool) -> Iterator[tuple[int, list[bytes]]]:
    """Answer one request in pieces; `hold` keeps the connection afterwards."""
    received: list[bytes] = []
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                while not received or not received[-1].endswith(b"\r\n\r\n"):
                    received.append(connection.recv(65536))
                for piece in pieces:
                    connection.sendall(piece)
                    time.sleep(0.01)
                if hold:
                    over.wait(5)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listening.getsockname()[1], received
        over.set()
        thread.join(5)


def ask(port: int, pad_bytes: int = 0, timeout_s: float = 2.0) -> dict[str, Any]:
    request = {
        "host": "127.0.0.1",
        "port": port,
        "path": "/healthz",
        "timeout_s": timeout_s,
        "pad_bytes": pad_bytes,
        "times": 1,
    }
    found: dict[str, Any]
    (found,) = canary.answer(request)["canaries"]
    return found


def test_a_canary_reads_the_whole_answer_on_a_connection_that_stays_open() -> None:
    """It counts the pieces, and is as long as it was asked to be."""
    with server(HEAD, b"ab", b"cd", hold=True) as (port, received):
        found = ask(port, pad_bytes=9000)
    assert (found["outcome"], found["received_bytes"]) == ("ok", len(HEAD) + 4)
    assert found["reads"] > 1
    assert 9000 <= len(b"".join(received)) == found["sent_bytes"]


@pytest.mark.parametrize(("hold", "outcome"), [(True, "timeout"), (False, "closed")])
def test_a_canary_without_an_answer_tells_how_it_ended(hold: bool, outcome: str) -> None:
    with server(hold=hold) as (port, _):
        assert ask(port, timeout_s=0.1)["outcome"] == outcome


def test_a_port_that_nobody_listens_on_refuses_a_canary() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    assert ask(port)["outcome"] == "refused"


def test_rules_and_counters_are_read_as_iptables_writes_them() -> None:
    """Only chains with the prefix count, and what leads to them from the chains of the kernel."""
    assert packets.chains(RULES, "fr-0a1b2c3d-") == ["fr-0a1b2c3d-11111111"]
    jump = ["INPUT", "!", "-i", "lo", "-j", "fr-0a1b2c3d-11111111"]
    assert packets.jumps(RULES, "fr-0a1b2c3d-") == [jump]
    assert packets.counters(LISTING) == (12, 3)


def test_log_lines_have_the_time_of_their_process_or_else_of_the_engine() -> None:
    """Nine digits of a second are kept; what is no JSON object is left out."""
    written = (
        '1970-01-01T00:00:02.123456789Z {"event": "a"}\n'
        '1970-01-01T00:00:03Z {"event": "b", "mono_ns": 7}\n'
        "1970-01-01T00:00:04Z Traceback\n"
        "1970-01-01T00:00:05Z 12\n"
    )
    lines = list(parsed(written, offset_ns=1))
    assert [(line.at_ns, line.fields["event"]) for line in lines] == [(2123456790, "a"), (7, "b")]
