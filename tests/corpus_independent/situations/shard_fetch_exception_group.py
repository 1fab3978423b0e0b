"""Shards are fetched side by side; what went wrong is raised together in one ExceptionGroup."""

import asyncio
import socket
import urllib.error


class ClientError(Exception):
    __module__ = "botocore.exceptions"


async def fetch(number: int) -> bytes:
    await asyncio.sleep(0.01)
    if number == 11:
        raise ClientError(
            "An error occurred (SlowDown) when calling the GetObject operation (reached max "
            "retries: 4): Please reduce your request rate."
        )
    if number == 29:
        raise urllib.error.URLError(
            socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        )
    return b"rows"


async def fetch_all() -> list[bytes]:
    results = await asyncio.gather(*(fetch(n) for n in range(64)), return_exceptions=True)
    errors = [result for result in results if isinstance(result, Exception)]
    if errors:
        raise ExceptionGroup(f"{len(errors)} of {len(results)} shards invalid", errors)
    return [result for result in results if isinstance(result, bytes)]


print(len(asyncio.run(fetch_all())))
