"""Whether the files of an open ledger are still the ones at their paths."""

import os
import time
from collections.abc import Iterable
from pathlib import Path

from flashruntime.errors import StoreUnavailable

# Changes of a directory within one tick of the kernel's clock, a few ms, can have one time stamp.
SETTLED_NS = 1_000_000_000


class LedgerFiles:
    """The identities of files in one directory.

    With `quiet`, nobody adds, removes or renames a file there in passing, so that a directory
    which has not changed for a while says that all of them are in place.
    """

    def __init__(self, directory: Path, names: Iterable[str], *, quiet: bool) -> None:
        self._directory = str(directory)
        self._quiet = quiet
        self._identities = {
            f"{directory}/{name}": _identity(f"{directory}/{name}") for name in names
        }
        self._unchanged: tuple[int, int, int] | None = None

    def check(self) -> None:
        """Raise StoreUnavailable if a file was deleted or replaced."""
        directory = self._stamp()
        if directory is not None and directory == self._unchanged:
            return
        for path, identity in self._identities.items():
            try:
                same = _identity(path) == identity
            except OSError:
                same = False
            if not same:
                raise StoreUnavailable(
                    f"{path} was deleted or replaced while the coordinator used it: what is "
                    "written now would be lost. Put the ledger back in place and restart"
                )
        settled = directory is not None and time.time_ns() - directory[2] > SETTLED_NS
        self._unchanged = directory if settled else None

    def _stamp(self) -> tuple[int, int, int] | None:
        if not self._quiet:
            return None
        try:
            status = os.stat(self._directory)  # noqa: PTH116 (hot path)
        except OSError:
            return None
        return status.st_dev, status.st_ino, status.st_mtime_ns


def _identity(path: str) -> tuple[int, int]:
    status = os.stat(path)  # noqa: PTH116 (hot path)
    return status.st_dev, status.st_ino
