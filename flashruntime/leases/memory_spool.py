"""The spool in memory."""

from collections.abc import Callable, Sequence
from functools import partial

from flashruntime.leases.record import ObjectRow
from flashruntime.leases.store_spool import Spooled


class MemorySpool:
    """Holds bytes until they are dropped; changes are undone with their transaction."""

    _objects: dict[str, ObjectRow]

    def __init__(self) -> None:
        super().__init__()
        self._spool: dict[int, tuple[Spooled, bytes]] = {}
        self._spool_number = 0

    def _later_undo(self, undo: Callable[[], object]) -> None:
        raise NotImplementedError

    def spool(self, sha256: str, data: bytes) -> None:
        """Keep bytes until `unspool`."""
        self._spool_number += 1
        number = self._spool_number
        self._later_undo(partial(self._spool.pop, number))
        self._spool[number] = Spooled(number, sha256), data

    def spooled(self, after: int, limit: int) -> list[Spooled]:
        """Return what is kept, numbered above `after`, in that order."""
        return [self._spool[number][0] for number in sorted(self._spool) if number > after][:limit]

    def spooled_bytes(self, number: int) -> bytes | None:
        """Return bytes that are kept."""
        found = self._spool.get(number)
        return None if found is None else found[1]

    def unspool(self, last: int) -> None:
        """Drop the bytes numbered up to `last`."""
        for number in [number for number in self._spool if number <= last]:
            old = self._spool.pop(number)
            self._later_undo(partial(self._spool.__setitem__, number, old))

    def first_object(self, keys: Sequence[str]) -> str | None:
        """Return one of these keys under which there is an object."""
        return next((key for key in keys if key in self._objects), None)
