"""The wall clocks of one run's containers, where its stack was started with the variant `clock`.

libfaketime lies in front of every process there and reads each service's offset from a file on a
volume; CLOCK_MONOTONIC stays as it is (https://github.com/wolfcw/libfaketime, README: "Using
FAKETIME_TIMESTAMP_FILE", DONT_FAKE_MONOTONIC).
"""

import json
import time
from datetime import datetime

from docker import DockerClient
from pydantic import BaseModel, ValidationError

from chaos.model import CannotRun, Container, JsonMap, NoTarget
from chaos.ports.processes import ClockReading
from chaos.targets.containers import RunContainers
from chaos.targets.engine import UndoAction, by_labels, explained
from chaos.targets.helper import Helper, Reach

VOLUME = "clock"
WRITABLE = "/clock"
LIBRARY = "libfaketime"
READ = (
    "import json, time; wall, monotonic = time.time(), time.monotonic(); "
    f"first = {LIBRARY!r} in open('/proc/1/maps').read(); "
    "print(json.dumps({'wall': wall, 'monotonic': monotonic, 'first': first}))"
)
LINES = 50
REACH = Reach(volumes=((VOLUME, "/clock-as-seen", WRITABLE),), network="none", user="0:0")


class Reading(BaseModel):
    """What a new process in the container prints."""

    wall: float
    monotonic: float
    first: bool


class Written(BaseModel):
    """What inside/clock.py answers."""

    written: str


class RunClocks:
    """The clocks of the containers that carry the label of one run."""

    def __init__(self, client: DockerClient, run_id: str, containers: RunContainers) -> None:
        self._client = client
        self._run_id = run_id
        self._containers = containers
        self._helper = Helper(client, run_id, "clock", REACH)

    def read(self, container: Container) -> ClockReading:
        """Read a container's clocks, between two readings of the host's.

        How far wall and monotonic clock lie apart is the same in every process of the host but for
        what was faked, so that it does not matter how long the reading takes.
        """
        found = self._containers.service(container.service)
        apart_s, before = time.time() - time.monotonic(), time.monotonic()
        reading = self._ask(found)
        after = time.monotonic()
        told_off_s, told_ns = self._told(found, apart_s)
        return ClockReading(
            off_s=round(reading.wall - reading.monotonic - apart_s, 3),
            monotonic_off_s=round(_outside(reading.monotonic, before, after), 3),
            reaches_first=reading.first,
            told_off_s=told_off_s,
            told_ns=told_ns,
        )

    def set(self, container: Container, offset_s: float) -> None:
        """Let the wall clock of a container be so far from the host's, from now on."""
        self._containers.refuse_foreign(container)
        request: JsonMap = {"path": f"{WRITABLE}/{container.service}", "offset_s": offset_s}
        self._helper.run("clock", request, Written)

    def set_right(self, service: str) -> None:
        """Take an offset away; a run whose stack has no such volume has none."""
        volumes = by_labels(self._run_id, {"com.docker.compose.volume": VOLUME})
        with explained("list of volumes"):
            if not self._client.volumes.list(filters=volumes):
                return
        self.set(self._containers.service(service), 0.0)

    def _ask(self, container: Container) -> Reading:
        api = self._client.api
        with explained(f"reading the clock of {container.service}"):
            words = ["python3", "-I", "-c", READ]
            made = api.exec_create(container.container_id, words, stderr=False)
            said = api.exec_start(made["Id"])
        try:
            return Reading.model_validate_json(said)
        except ValidationError as error:
            raise CannotRun(f"{container.service} does not tell the time: {said!r}") from error

    def _told(self, container: Container, apart_s: float) -> tuple[float | None, int | None]:
        """Return how far off the newest line of its log is that says both times, and when."""
        with explained(f"log of {container.service}"):
            log = self._client.api.logs(container.container_id, tail=LINES)
        for line in reversed(log.decode("utf-8", "replace").splitlines()):
            try:
                told = json.loads(line)
                wall = datetime.fromisoformat(told["ts"]).timestamp()
                monotonic_ns = int(told["mono_ns"])
            except (ValueError, KeyError, TypeError):
                continue
            return round(wall - monotonic_ns / 1e9 - apart_s, 3), monotonic_ns
        return None, None


def _outside(value: float, low: float, high: float) -> float:
    """Return how far a number lies outside of a range, 0 inside."""
    return min(0.0, value - low) or max(0.0, value - high)


def _set_clock_right(client: DockerClient, run_id: str, args: JsonMap) -> None:
    try:
        RunClocks(client, run_id, RunContainers(client, run_id)).set_right(str(args["service"]))
    except NoTarget:
        return


UNDOS: dict[str, UndoAction] = {"set_clock_right": _set_clock_right}
