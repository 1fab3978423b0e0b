"""A part of the world that a system under test does not have."""

from typing import Any

from chaos.model import NoTarget


class Absent:
    """Refuses every call, so that a fault which needs it has missed, and says why."""

    def __init__(self, what: str, present: object) -> None:
        self._what = what
        self._present = present

    def __getattr__(self, name: str) -> Any:
        """Return what is there after all, or a call that is refused."""
        if hasattr(self._present, name):
            return getattr(self._present, name)

        def refuse(*_arguments: object, **_options: object) -> Any:
            raise NoTarget(f"this system has no {self._what} ({name})")

        return refuse


def absent(what: str, present: object = None) -> Any:
    """Return a port of which only the methods of `present` are there; NoTarget for the others."""
    return Absent(what, present)
