"""The processes of one run's containers: what the engine tells, what may be done, what they use."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Protocol

from chaos.model import Container, JsonMap, JsonValue


@dataclass(frozen=True, slots=True)
class ContainerState:
    """A container as the engine describes it now; `pid` is its first process on the host, or 0."""

    pid: int
    started_at: str
    restarts: int
    running: bool
    paused: bool


@dataclass(frozen=True, slots=True)
class Told:
    """Something that the engine says has happened to a container; `at_ns` is CLOCK_MONOTONIC."""

    name: str
    at_ns: int
    exit_code: int | None = None
    signal: int | None = None


@dataclass(frozen=True, slots=True)
class Process:
    """A process of a container: its number on the host and in the container, and its words."""

    pid: int
    inner_pid: int
    parent: int
    command: str


@dataclass(frozen=True, slots=True)
class Usage:
    """Counters of a container's control group; None where the host does not show one."""

    oom_kills: int | None
    memory_bytes: int | None
    memory_limit_bytes: int | None
    throttled_periods: int | None


class Processes(Protocol):
    """The processes of one run; a container without the run's label raises NotOurs."""

    def state(self, container: Container) -> ContainerState:
        """Return what the engine knows of the service's container now."""
        ...

    def told(
        self, container: Container, since_ns: int, until: str | None = None
    ) -> tuple[Told, ...]:
        """Return what the engine said of a container since then, in order.

        It tells a little late: `until` names what is waited for, some seconds at most.
        """
        ...

    def stop(self, container: Container, grace_s: int) -> None:
        """Ask it to end, as the engine does, and return when it has ended."""
        ...

    def restart(self, container: Container, grace_s: int) -> None:
        """Stop it and start it, in one call of the engine."""
        ...

    def listing(self, container: Container) -> tuple[Process, ...]:
        """Return its processes, its first one first; none where it does not run."""
        ...

    def signal(self, container: Container, pid: int, signal: str) -> bool:
        """Send a signal to one process by its number on the host; False where it is gone."""
        ...

    def usage(self, container: Container) -> Usage:
        """Read the counters of its control group."""
        ...

    def limits(self, container: Container) -> JsonMap:
        """Return its limits of memory and CPU as the arguments of the undo `restore_limits`."""
        ...

    def limit_memory(self, container: Container, size_bytes: int) -> None:
        """Give it less memory while it runs, and no swap."""
        ...

    def throttle(self, container: Container, cores: float) -> None:
        """Give it so much of one core's time while it runs."""
        ...

    def evidence(self, lease_id: str) -> JsonMap | None:
        """Return what the payload of an attempt wrote down of itself, None where it did not."""
        ...


@dataclass(frozen=True, slots=True)
class ClockReading:
    """A container's clocks as a new process in it reads them, beside those of the host.

    `off_s` is how far its wall clock is from the host's, `monotonic_off_s` the same of
    CLOCK_MONOTONIC. `reaches_first` tells whether its first process reads the same clock; how far
    off that one is by its newest line of log with both times, and when (`told_ns`): None where
    there is no such line.
    """

    off_s: float
    monotonic_off_s: float
    reaches_first: bool
    told_off_s: float | None = None
    told_ns: int | None = None


class Clocks(Protocol):
    """The wall clocks of one run's containers."""

    def read(self, container: Container) -> ClockReading:
        """Read a container's clocks, between two readings of the host's."""
        ...

    def set(self, container: Container, offset_s: float) -> None:
        """Let the wall clock of a container be so far from the host's, from now on."""
        ...


def as_json(container: Container) -> dict[str, JsonValue]:
    """Return a container as it stands in what a fault has done."""
    return {"container_id": container.container_id, "service": container.service}


def container_in(fired: JsonMap, run_id: str | None = None) -> Container:
    """Return the container that a fault has hit, also where its symbol means another by now."""
    return Container(str(fired["container_id"]), str(fired["service"]), run_id)


def as_evidence(told: Sequence[Told]) -> list[JsonValue]:
    """Return what the engine told as it stands in a receipt: without what is not known."""
    return [
        {name: value for name, value in asdict(each).items() if value is not None} for each in told
    ]
