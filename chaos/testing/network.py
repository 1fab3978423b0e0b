"""The twins of paths and packets: canaries feel what is switched on, and nothing takes time."""

from collections.abc import Callable, Mapping, Sequence

from chaos.model import CannotRun, Container, JsonMap
from chaos.ports import Canary, Counted, Line, Probe, Rule, Toxic

ANSWER_BYTES = 200
QUICK_S = 0.001
PACKETS_EACH = 10
ENDS = {"timeout": "timeout", "reset_peer": "reset"}
HOME: JsonMap = {"network": "edge", "aliases": ["worker"], "address": "10.0.0.2"}


class FakeNetwork:
    """Listeners without a network; `is_deaf` makes toxics bite nobody, `is_up` is Toxiproxy."""

    def __init__(self) -> None:
        self.active: dict[str, dict[str, Toxic]] = {}
        self.closed: set[str] = set()
        self.is_deaf = False
        self.is_up: Callable[[], bool] = lambda: True

    def listener_of(self, container: Container) -> str:
        """Return the listener named like the worker."""
        return container.service

    def listeners(self) -> tuple[str, ...]:
        """Return two listeners, unless Toxiproxy is down."""
        if not self.is_up():
            raise CannotRun("Toxiproxy does not answer")
        return tuple(name for name in ("clients", "worker-1") if name not in self.closed)

    def add(self, listener: str, toxic: Toxic) -> None:
        """Switch a toxic on."""
        self.active.setdefault(listener, {})[toxic.name] = toxic

    def remove(self, listener: str, name: str) -> None:
        """Switch a toxic off."""
        self.active.get(listener, {}).pop(name, None)

    def toxics(self) -> Mapping[str, tuple[Toxic, ...]]:
        """Return what is switched on."""
        return {name: tuple(found.values()) for name, found in self.active.items() if found}

    def probe(self, listener: str, timeout_s: float) -> Probe:
        """Time out where there is a toxic."""
        hurt = bool(self.active.get(listener))
        return Probe("timeout", timeout_s) if hurt else Probe("ok", QUICK_S)

    def canary(self, listener: str, timeout_s: float, pad_bytes: int = 0) -> Canary:
        """Be as late, as cut up or as lost as the toxics say."""
        if not self.is_up():
            return Canary("error", QUICK_S)
        if listener in self.closed:
            return Canary("refused", QUICK_S)
        toxics = [] if self.is_deaf else [*self.active.get(listener, {}).values()]
        for toxic in toxics:
            if toxic.type in ENDS:
                return Canary(ENDS[toxic.type], timeout_s)
        sent = 100 + pad_bytes
        elapsed_s = QUICK_S + sum(_delay_s(toxic, sent) for toxic in toxics)
        reads = max((_pieces(toxic) for toxic in toxics), default=1)
        return Canary("ok", elapsed_s, sent, ANSWER_BYTES, reads)

    def switch(self, listener: str, *, on: bool) -> None:
        """Open or close a listener."""
        (self.closed.discard if on else self.closed.add)(listener)

    def renew(self, listener: str) -> None:
        """Take its toxics away and open it."""
        self.active.pop(listener, None)
        self.closed.discard(listener)


def _delay_s(toxic: Toxic, sent_bytes: int) -> float:
    size = sent_bytes if toxic.stream == "upstream" else ANSWER_BYTES
    found = toxic.attributes
    if toxic.type == "latency":
        return (found["latency"] - found.get("jitter", 0)) / 1e3
    if toxic.type == "bandwidth":
        return size / (found["rate"] * 1e3)
    return _pieces(toxic) * found["delay"] / 1e6 if toxic.type == "slicer" else 0.0


def _pieces(toxic: Toxic) -> int:
    return ANSWER_BYTES // toxic.attributes["average_size"] if toxic.type == "slicer" else 1


class FakePackets:
    """Rules that count ten packets for each canary; one in a few canaries is hit by loss."""

    def __init__(self) -> None:
        self.rules: dict[str, dict[str, Rule]] = {}
        self.counts: dict[str, Counted] = {}
        self.alone: set[str] = set()
        self.is_deaf = False

    def drop(self, container: Container, rule: Rule) -> None:
        """Put a rule in place."""
        self.rules.setdefault(container.service, {})[rule.name] = rule
        self.counts[rule.name] = Counted(0, 0)

    def counted(self, container: Container, name: str) -> Counted | None:
        """Return the counters of a rule."""
        return self.counts[name] if name in self.rules.get(container.service, {}) else None

    def clear(self, container: Container) -> None:
        """Take all rules away."""
        self.rules.pop(container.service, None)

    def canaries(
        self, container: Container, listener: str, times: int, timeout_s: float
    ) -> tuple[Canary, ...]:
        """Be lost as the rules say, in turn."""
        del listener
        return tuple(self._canary(container, number, timeout_s) for number in range(times))

    def attachments(self, container: Container) -> Sequence[JsonMap]:
        """Return its one network."""
        return () if container.service in self.alone else (HOME,)

    def detach(self, container: Container) -> None:
        """Take it out."""
        self.alone.add(container.service)

    def attach(self, container: Container, attachments: Sequence[JsonMap]) -> None:
        """Put it back."""
        del attachments
        self.alone.discard(container.service)

    def _canary(self, container: Container, number: int, timeout_s: float) -> Canary:
        if container.service in self.alone:
            return Canary("error", QUICK_S)
        for rule in self.rules.get(container.service, {}).values():
            before, hit = self.counts[rule.name], 0 if self.is_deaf else rule.probability
            dropped = before.dropped + round(PACKETS_EACH * hit)
            self.counts[rule.name] = Counted(before.seen + PACKETS_EACH, dropped)
            if number < hit * PACKETS_EACH:
                return Canary("timeout", timeout_s)
        return Canary("ok", QUICK_S)


class FakeLogs:
    """Lines that a test puts there."""

    def __init__(self) -> None:
        self.lines: dict[str, list[Line]] = {}

    def since(self, service: str, since_ns: int) -> tuple[Line, ...]:
        """Return those that came after a moment."""
        return tuple(line for line in self.lines.get(service, ()) if line.at_ns > since_ns)
