"""The twins of processes and clocks: containers that stop and start by themselves, no time passes.

What the real ones would find out is set by the test: counters, listings, what payloads wrote.
"""

import time
from dataclasses import dataclass, field, replace
from typing import TypeVar

from chaos.model import Container, JsonMap
from chaos.ports.processes import ClockReading, ContainerState, Process, Told, Usage
from chaos.testing.system import FakeSystem

T = TypeVar("T")
NO_USAGE = Usage(0, 100 << 20, 2 << 30, 0)


@dataclass
class FakeProcesses:
    """Containers of a FakeSystem; `exit_codes` say how each ends when it is asked to."""

    system: FakeSystem
    exit_codes: dict[str, int] = field(default_factory=dict)
    usages: dict[str, list[Usage]] = field(default_factory=dict)
    listings: dict[str, list[tuple[Process, ...]]] = field(default_factory=dict)
    written: dict[str, JsonMap] = field(default_factory=dict)
    limited: dict[str, JsonMap] = field(default_factory=dict)
    signals: list[tuple[str, int, str]] = field(default_factory=list)
    starts: dict[str, int] = field(default_factory=dict)
    log: list[tuple[str, Told]] = field(default_factory=list)

    def state(self, container: Container) -> ContainerState:
        """Return a state whose pid and start change with each start."""
        name = container.service
        starts, is_up = self.starts.get(name, 0), name not in self.system.down
        pid = 1000 + starts if is_up else 0
        return ContainerState(pid, f"start {starts}", 0, is_up, paused=False)

    def told(
        self, container: Container, since_ns: int, until: str | None = None
    ) -> tuple[Told, ...]:
        """Return what was said of a container."""
        del until
        own = (told for name, told in self.log if name == container.service)
        return tuple(told for told in own if told.at_ns >= since_ns)

    def say(self, service: str, name: str, **more: int) -> None:
        """Say something as the engine would."""
        self.log.append((service, Told(name, time.monotonic_ns(), **more)))

    def stop(self, container: Container, grace_s: int) -> None:
        """End a container."""
        del grace_s
        name = container.service
        self.say(name, "kill", signal=15)
        self.say(name, "die", exit_code=self.exit_codes.get(name, 0))
        self.say(name, "stop")
        self.system.down.add(name)

    def restart(self, container: Container, grace_s: int) -> None:
        """End it and start it again."""
        self.stop(container, grace_s)
        self.system.down.discard(container.service)
        self.starts[container.service] = self.starts.get(container.service, 0) + 1
        self.say(container.service, "start")
        self.say(container.service, "restart")

    def listing(self, container: Container) -> tuple[Process, ...]:
        """Return the next listing of a container; the last one stays."""
        return _next(self.listings.get(container.service, [()]))

    def signal(self, container: Container, pid: int, signal: str) -> bool:
        """Note a signal; the first process takes its container down with it."""
        self.signals.append((container.service, pid, signal))
        if pid == self.state(container).pid:
            self.system.kill(container, signal)
            self.say(container.service, "die", exit_code=137)
        return True

    def usage(self, container: Container) -> Usage:
        """Return the next counters of a container; the last ones stay."""
        return _next(self.usages.get(container.service, [NO_USAGE]))

    def limits(self, container: Container) -> JsonMap:
        """Return limits as an undo knows them."""
        service = container.service
        return {"service": service, "memory": 1, "memory_swap": -1, "cpu_quota": -1}

    def limit_memory(self, container: Container, size_bytes: int) -> None:
        """Note a limit."""
        self.limited[container.service] = {"memory": size_bytes}

    def throttle(self, container: Container, cores: float) -> None:
        """Note a limit."""
        self.limited[container.service] = {"cores": cores}

    def evidence(self, lease_id: str) -> JsonMap | None:
        """Return what a test put there."""
        return self.written.get(lease_id)

    def undo(self, action: str, args: JsonMap) -> None:
        """Put right what an undo of processes speaks of; others are not known here."""
        if action == "restore_limits":
            self.limited.pop(str(args["service"]), None)


@dataclass
class FakeClocks:
    """Clocks that are off by what was set, where `reach` says that a container has such a clock."""

    reach: bool = True
    offsets: dict[str, float] = field(default_factory=dict)
    told: ClockReading | None = None

    def read(self, container: Container) -> ClockReading:
        """Return how far off a container is."""
        off_s = self.offsets.get(container.service, 0.0) if self.reach else 0.0
        reading = ClockReading(off_s, 0.0, self.reach)
        if self.told is None:
            return reading
        return replace(reading, told_off_s=self.told.told_off_s, told_ns=time.monotonic_ns())

    def set(self, container: Container, offset_s: float) -> None:
        """Set a clock."""
        self.offsets[container.service] = offset_s

    def undo(self, action: str, args: JsonMap) -> None:
        """Put right what an undo of clocks speaks of; others are not known here."""
        if action == "set_clock_right":
            self.offsets.pop(str(args["service"]), None)


def _next(values: list[T]) -> T:
    return values.pop(0) if len(values) > 1 else values[0]
