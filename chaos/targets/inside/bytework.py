"""What can happen to the bytes of a file: each mode durable, in place, and drawn from one number.

A mode is given a file, another one of the same kind, and a `Spot`; it returns nothing, for what it
did is read back from the disk by another process.
"""

import hashlib
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from chaos.targets.inside.flip import flip

BLOCK_BYTES = 1 << 20
FRACTIONS = 1 << 16


@dataclass(frozen=True, slots=True)
class Spot:
    """Where and how a file is hit; `number` chooses among several files, modulo their count."""

    number: int
    fraction: float
    bit: int
    noise: bytes

    @classmethod
    def of(cls, choice: int) -> "Spot":
        """Return the spot that a seeded number stands for."""
        drawn = hashlib.sha256(str(choice).encode()).digest()
        return cls(
            number=int.from_bytes(drawn[:4], "big"),
            fraction=int.from_bytes(drawn[4:6], "big") / FRACTIONS,
            bit=drawn[6] % 8,
            noise=drawn,
        )


def read_by_another(path: Path) -> str | None:
    """Return the sha256 of what a process of its own reads there, None where there is no file."""
    if not path.is_file():
        return None
    done = subprocess.run(["sha256sum", "--", path], capture_output=True, check=True, text=True)
    return done.stdout.removeprefix("\\").split()[0]


def put(path: Path, data: bytes) -> None:
    """Make a file hold these bytes and no others, durably; an existing one keeps its inode."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        os.ftruncate(descriptor, len(data))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def flip_bits(path: Path, _other: Path, spot: Spot) -> None:
    """Flip one bit."""
    size_bytes = path.stat().st_size
    flip(path, min(int(spot.fraction * size_bytes), size_bytes - 1), spot.bit)


def truncate(path: Path, _other: Path, spot: Spot) -> None:
    """Cut the end off: at least the last byte is gone."""
    with path.open("r+b") as stream:
        stream.truncate(int(spot.fraction * path.stat().st_size))
        os.fsync(stream.fileno())


def delete(path: Path, _other: Path, _spot: Spot) -> None:
    """Remove the file."""
    path.unlink()
    sync_directory(path.parent)


def zero(path: Path, _other: Path, _spot: Spot) -> None:
    """Turn every byte into a zero."""
    left_bytes = path.stat().st_size
    with path.open("r+b") as stream:
        while left_bytes > 0:
            left_bytes -= stream.write(bytes(min(BLOCK_BYTES, left_bytes)))
        stream.flush()
        os.fsync(stream.fileno())


def swap(path: Path, other: Path, _spot: Spot) -> None:
    """Exchange the bytes of two files."""
    mine, its = path.read_bytes(), other.read_bytes()
    put(path, its)
    put(other, mine)


def copy_over(path: Path, other: Path, _spot: Spot) -> None:
    """Give a file the bytes of the other one."""
    put(path, other.read_bytes())


def garble(path: Path, _other: Path, spot: Spot) -> None:
    """Fill the file with noise of the same length."""
    size_bytes = path.stat().st_size
    repeats = size_bytes // len(spot.noise) + 1
    put(path, (spot.noise * repeats)[:size_bytes])


MODES: dict[str, Callable[[Path, Path, Spot], None]] = {
    "flip_bits": flip_bits,
    "truncate": truncate,
    "delete": delete,
    "zero": zero,
    "swap": swap,
    "roll_back": copy_over,
    "garbage_manifest": garble,
}
