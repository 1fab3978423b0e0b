"""Host memory that every save reuses: the state as it was at the call, in pieces of equal size.

Touching fresh pages costs fifteen times what copying does, so pages are kept. Processes that the
job forks (the workers of a data loader) get fresh ones: otherwise the next save would pay for a
second copy of each page.
"""

import contextlib
import mmap
import sys
from collections.abc import Callable, Mapping

from flashruntime.checkpoint.files import DIRECT_BYTES, Buffer
from flashruntime.protocol.checkpoints import MAX_PART_BYTES

_FLAGS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
_POPULATE = getattr(mmap, "MAP_POPULATE", 0)
# Since Linux 4.14; not in the module mmap.
_WIPEONFORK = 18 if sys.platform == "linux" else None

Allocate = Callable[[int], memoryview]


def lazily(size_bytes: int) -> memoryview:
    """Return memory whose pages come when they are written to."""
    return _mapped(size_bytes, _FLAGS)


def at_once(size_bytes: int) -> memoryview:
    """Return memory whose pages are there already, where the system can do that."""
    return _mapped(size_bytes, _FLAGS | _POPULATE)


def _mapped(size_bytes: int, flags: int) -> memoryview:
    memory = mmap.mmap(-1, size_bytes, flags=flags)
    if _WIPEONFORK is not None:
        with contextlib.suppress(OSError):
            memory.madvise(_WIPEONFORK)
    return memoryview(memory)


class HostBuffers:
    """Pieces of host memory, numbered from 0; what a save puts there lasts until the next one."""

    def __init__(self, piece_bytes: int = MAX_PART_BYTES, allocate: Allocate = lazily) -> None:
        self.piece_bytes = piece_bytes
        self._allocate = allocate
        self._pieces: list[memoryview] = []

    def piece(self, number: int) -> memoryview:
        """Return piece `number`, allocated at its first use."""
        while len(self._pieces) <= number:
            self._pieces.append(self._allocate(self.piece_bytes))
        return self._pieces[number]

    def copy(self, parts: Mapping[str, Buffer]) -> dict[str, memoryview]:
        """Return the parts as they are now; each fits into a piece."""
        copies: dict[str, memoryview] = {}
        number, used = 0, 0
        for key, data in parts.items():
            view = memoryview(data).cast("B")
            if len(view) >= DIRECT_BYTES:
                used = -(-used // mmap.PAGESIZE) * mmap.PAGESIZE
            if used + len(view) > self.piece_bytes:
                number, used = number + 1, 0
            copies[key] = self.piece(number)[used : used + len(view)]
            copies[key][:] = view
            used += len(view)
        return copies
