"""One operation on a volume, as a recorded process performed it."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What an operation does; `ANSWERED` touches nothing: somebody was told that all is safe."""

    MKDIR = "mkdir"
    CREATE = "create"
    WRITE = "write"
    TRUNCATE = "truncate"
    FSYNC = "fsync"
    SYNC = "sync"
    RENAME = "rename"
    LINK = "link"
    UNLINK = "unlink"
    ANSWERED = "answered"


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation; paths are relative to the volume, "" being its root.

    `to` is the new name of RENAME and LINK, `offset` and `data` belong to WRITE (an offset of None
    appends), `size_bytes` to TRUNCATE. The path of ANSWERED is the item that is now promised.
    """

    kind: Kind
    path: str
    to: str = ""
    offset: int | None = None
    data: bytes = b""
    size_bytes: int = 0

    def __str__(self) -> str:
        """Return it in words, without its data."""
        if self.kind in {Kind.RENAME, Kind.LINK}:
            return f"{self.kind} {self.path} to {self.to}"
        if self.kind is Kind.WRITE:
            return f"write {self.path} {self.offset}+{len(self.data)}"
        if self.kind is Kind.TRUNCATE:
            return f"truncate {self.path} to {self.size_bytes}"
        return f"{self.kind} {self.path or '.'}"


Tree = Mapping[str, bytes | None]
"""What a volume holds: the bytes of each file by its path, None for a directory."""
