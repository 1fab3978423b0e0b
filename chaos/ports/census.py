"""Which processes run in the containers of a run."""

from collections.abc import Mapping
from typing import Protocol


class Census(Protocol):
    """Looks at processes; touches none."""

    def processes(self) -> Mapping[str, tuple[str, ...]]:
        """Return worker service -> the command line of each process in its container.

        A container that does not run is left out. Raise CannotRun where one cannot be asked.
        """
        ...
