"""Heads of requests on a real connection: bounded in size and in time."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
import uvicorn

from flashruntime.service import wire

MORE = b"v" * 4_000_000
PATIENCE_S = 10.0
CHUNKED = b"PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX: "
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[Any]]


async def application(scope: Any, receive: Any, send: Any) -> None:
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body"})


def talked(talk: Talk) -> Any:
    """Talk to a server with this protocol, on a connection of one's own."""

    async def run() -> Any:
        config = uvicorn.Config(application, port=0, http=wire.BoundedHttp, log_config=None)
        config.load()
        server = uvicorn.Server(config)
        server.lifespan = config.lifespan_class(config)
        await server.startup()
        port = server.servers[0].sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            return await talk(reader, writer)
        finally:
            writer.close()
            server.should_exit = True
            await server.shutdown()

    return asyncio.run(run())


@pytest.mark.parametrize("begin", [b"GET /", b"GET / HTTP/1.1\r\nX: ", CHUNKED])
def test_a_head_or_trailer_without_end_is_cut_off(begin: bytes) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        writer.write(begin + MORE)
        with suppress(ConnectionError):
            await asyncio.wait_for(reader.read(), PATIENCE_S)
        return True

    assert talked(talk)


def test_a_head_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "HEAD_S", 0.03)

    for begin in (b"", b"GET / HTTP/1.1\r\nX:"):

        async def talk(
            reader: asyncio.StreamReader, writer: asyncio.StreamWriter, begin: bytes = begin
        ) -> bytes:
            writer.write(begin)
            return await reader.read()

        assert talked(talk) == b""


def test_a_long_body_and_many_requests_on_one_connection_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The clock runs for heads only."""
    monkeypatch.setattr(wire, "HEAD_S", 0.05)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> list[bytes]:
        statuses = []
        for size in (0, 300_000, 0):
            head = f"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n"
            writer.write(head.encode())
            await writer.drain()
            if size:
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(reader.read(1), 0.1)
            writer.write(b"b" * size)
            statuses.append((await reader.readuntil(b"\r\n\r\n"))[:12])
        return statuses

    assert talked(talk) == [b"HTTP/1.1 204"] * 3
