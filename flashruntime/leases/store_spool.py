"""The port to the spool: bytes that the ledger keeps until their files are on disk."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Spooled:
    """Bytes that the ledger keeps, numbered as they came."""

    number: int
    sha256: str


class SpoolTransaction(Protocol):
    """Operations of one transaction."""

    def spool(self, sha256: str, data: bytes) -> None:
        """Keep bytes until `unspool`."""
        ...

    def spooled(self, after: int, limit: int) -> list[Spooled]:
        """Return what is kept, numbered above `after`, in that order."""
        ...

    def spooled_bytes(self, number: int) -> bytes | None:
        """Return bytes that are kept."""
        ...

    def unspool(self, last: int) -> None:
        """Drop the bytes numbered up to `last`."""
        ...

    def first_object(self, keys: Sequence[str]) -> str | None:
        """Return one of these keys under which there is an object."""
        ...
