"""Packets on their way into and out of a container, and its place in the network."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from chaos.model import Container, JsonMap
from chaos.ports.values import Canary


class Flow(StrEnum):
    """Which packets of a container, loopback apart."""

    IN = "in"
    OUT = "out"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class Rule:
    """Drops packets, each with `probability`; `name` is unique to its fault."""

    name: str
    flow: Flow
    probability: float = 1.0


@dataclass(frozen=True, slots=True)
class Counted:
    """What the kernel counted at a rule: packets that came by, and those of them it dropped."""

    seen: int
    dropped: int


class Packets(Protocol):
    """The packet filter and the network of single containers."""

    def drop(self, container: Container, rule: Rule) -> None:
        """Put a rule in place and read it back; raise CannotRun where it is not there."""
        ...

    def counted(self, container: Container, name: str) -> Counted | None:
        """Return the counters of a rule, None where there is no such rule."""
        ...

    def clear(self, container: Container) -> None:
        """Take away every rule of this run; none is fine."""
        ...

    def canaries(
        self, container: Container, listener: str, times: int, timeout_s: float
    ) -> tuple[Canary, ...]:
        """Make requests through a listener, from the container's own place in the network."""
        ...

    def attachments(self, container: Container) -> Sequence[JsonMap]:
        """Return {"network", "aliases", "address"} of each network that it is in now."""
        ...

    def detach(self, container: Container) -> None:
        """Take it out of all its networks, and read that back."""
        ...

    def attach(self, container: Container, attachments: Sequence[JsonMap]) -> None:
        """Put it into these networks again; those that it is in are left as they are."""
        ...
