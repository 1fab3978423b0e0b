"""The logs of a run's containers, as the engine keeps them."""

import json
import time
from collections.abc import Iterator
from datetime import datetime

from docker import DockerClient

from chaos.history import integer
from chaos.ports import Line
from chaos.targets.containers import RunContainers
from chaos.targets.engine import explained

NS = 1_000_000_000


class EngineLogs:
    """Structured lines, asked for anew each time; what is no JSON object is left out."""

    def __init__(self, client: DockerClient, containers: RunContainers) -> None:
        self._client = client
        self._containers = containers

    def since(self, service: str, since_ns: int) -> tuple[Line, ...]:
        """Return the structured lines that came after `since_ns`, in order."""
        container = self._containers.service(service)
        offset_ns = time.monotonic_ns() - time.time_ns()
        since_s = (since_ns - offset_ns) / NS
        with explained(f"logs of {service}"):
            written = self._client.api.logs(
                container.container_id, timestamps=True, since=since_s, stream=False
            )
        lines = parsed(bytes(written).decode(errors="replace"), offset_ns)
        return tuple(line for line in lines if line.at_ns > since_ns)


def parsed(written: str, offset_ns: int) -> Iterator[Line]:
    """Yield the JSON objects of a log, each of whose lines begins with the engine's time."""
    for line in written.splitlines():
        stamp, _, text = line.partition(" ")
        try:
            fields, at_ns = json.loads(text), wall_ns(stamp) + offset_ns
        except ValueError:
            continue
        if isinstance(fields, dict):
            yield Line(integer(fields.get("mono_ns")) or at_ns, fields)


def wall_ns(stamp: str) -> int:
    """Return nanoseconds of the epoch for RFC 3339 with up to nine digits of a second."""
    whole, _, fraction = stamp.removesuffix("Z").partition(".")
    seconds = int(datetime.fromisoformat(f"{whole}+00:00").timestamp())
    return seconds * NS + int(fraction.ljust(9, "0")[:9] or 0)
