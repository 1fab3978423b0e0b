"""What the processes of a run write, as the engine keeps it."""

from dataclasses import dataclass
from typing import Protocol

from chaos.model import JsonMap


@dataclass(frozen=True, slots=True)
class Line:
    """One structured line of a log; `at_ns` is CLOCK_MONOTONIC, of the process or of the engine."""

    at_ns: int
    fields: JsonMap


class Logs(Protocol):
    """The logs of the containers of a run."""

    def since(self, service: str, since_ns: int) -> tuple[Line, ...]:
        """Return the structured lines that came after `since_ns`, in order.

        Raise NoTarget where the service has no container.
        """
        ...
