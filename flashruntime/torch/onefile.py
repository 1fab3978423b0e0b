"""Checkpoints whose parts make up one file of torch.save, as earlier versions wrote them."""

import io
from bisect import bisect_right
from itertools import accumulate
from typing import Any

import torch

PART_NAME = "state-{:05d}.bin"


def load(parts: dict[str, bytearray]) -> Any:
    """Return what the file holds; KeyError where the parts are no such file."""
    chunks = [parts[PART_NAME.format(index)] for index in range(len(parts))]
    source = io.BufferedReader(_PartsReader(chunks), buffer_size=1024 * 1024)
    return torch.load(source, map_location="cpu", weights_only=True)


class _PartsReader(io.RawIOBase):
    """The parts as one file, without joining them in memory."""

    def __init__(self, chunks: list[bytearray]) -> None:
        self._chunks = [memoryview(chunk) for chunk in chunks]
        self._ends = list(accumulate(len(chunk) for chunk in chunks))
        self._size_bytes = self._ends[-1] if chunks else 0
        self._offset = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._offset

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._offset, io.SEEK_END: self._size_bytes}[whence]
        self._offset = max(0, base + offset)
        return self._offset

    def readinto(self, buffer: Any) -> int:
        if self._offset >= self._size_bytes:
            return 0
        index = bisect_right(self._ends, self._offset)
        start = self._offset - (self._ends[index] - len(self._chunks[index]))
        target = memoryview(buffer).cast("B")
        piece = self._chunks[index][start : start + len(target)]
        target[: len(piece)] = piece
        self._offset += len(piece)
        return len(piece)
