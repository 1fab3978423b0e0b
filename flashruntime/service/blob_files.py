"""The files of a blob store: listed, looked at, removed and set aside, never through a link."""

import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from flashruntime.errors import ArtifactCorrupt
from flashruntime.service.blob_guard import BlobGuard

DIGEST = re.compile(r"[0-9a-f]{64}")
SHARDS = tuple(f"{number:02x}" for number in range(256))
# No file, or a link in its place. Anything else (descriptors, memory) says nothing about a blob.
GONE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Blob:
    """A file of the store; `at_s` is when it was put there, by the file system's clock."""

    sha256: str
    size_bytes: int
    at_s: float


class BlobFiles:
    """The files below a root, one for each digest; thread-safe."""

    def __init__(self, root: Path, guard: BlobGuard) -> None:
        self.root = root
        self.guard = guard

    def listing(self, shard: str) -> list[Blob]:
        """Return the blobs of a shard by digest; from then on their bytes are counted."""
        found: list[Blob] = []

        def look() -> int:
            found[:] = self._scan(shard)
            return sum(blob.size_bytes for blob in found)

        self.guard.measure(shard, look)
        return sorted(found or self._scan(shard), key=lambda blob: blob.sha256)

    def _scan(self, shard: str) -> list[Blob]:
        try:
            descriptor = os.open(self.root / "sha256" / shard, DIRECTORY)
        except (FileNotFoundError, NotADirectoryError):
            return []
        try:
            with os.scandir(descriptor) as entries:
                named = [entry for entry in entries if DIGEST.fullmatch(entry.name)]
                return [
                    Blob(entry.name, status.st_size, status.st_mtime)
                    for entry in named
                    if stat.S_ISREG((status := entry.stat(follow_symlinks=False)).st_mode)
                ]
        finally:
            os.close(descriptor)

    @contextmanager
    def _opened(self, sha256: str) -> Iterator[int]:
        """Open the shard of a blob; FileNotFoundError if there is none, also if it is a link."""
        try:
            descriptor = os.open(self._shard(sha256), DIRECTORY)
        except OSError as error:
            if error.errno not in GONE:
                raise
            raise FileNotFoundError(error.errno, str(error)) from error
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _status(self, sha256: str) -> os.stat_result | None:
        try:
            with self._opened(sha256) as shard:
                return os.stat(sha256, dir_fd=shard, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def inode(self, sha256: str) -> int | None:
        """Return the inode of a blob's file, None if there is no file."""
        status = self._status(sha256)
        return None if status is None else status.st_ino

    def whole(self, sha256: str, size_bytes: int) -> bool:
        """Whether a regular file of this size is there."""
        status = self._status(sha256)
        return status is not None and stat.S_ISREG(status.st_mode) and status.st_size == size_bytes

    def take_away(self, sha256: str) -> Path | None:
        """Take a blob out of the store; return where it is to be deleted.

        None if it is not there, or is being uploaded.
        """
        aside = self.root / "tmp" / uuid4().hex
        with suppress(FileNotFoundError), self._opened(sha256) as shard:

            def take() -> int:
                os.rename(sha256, aside, src_dir_fd=shard)
                return aside.lstat().st_size

            if self.guard.take(sha256, take):
                return aside
        return None

    def quarantine(self, sha256: str, inode: int) -> bool:
        """Move a rotten blob aside; False if another file has taken the place of `inode`."""
        moved = False
        with suppress(FileNotFoundError), self._opened(sha256) as shard:

            def take() -> int:
                nonlocal moved
                status = os.stat(sha256, dir_fd=shard, follow_symlinks=False)
                if status.st_ino != inode:
                    return 0
                os.rename(sha256, self.root / "quarantine" / sha256, src_dir_fd=shard)
                moved = True
                return -status.st_size

            self.guard.replace(sha256, take)
        return moved

    def clear_quarantine(self, damaged: frozenset[str]) -> None:
        """Delete what was set aside, but for what is still `damaged`."""
        for path in (self.root / "quarantine").iterdir():
            if path.name not in damaged:
                path.unlink(missing_ok=True)

    def _shard(self, sha256: str) -> Path:
        if not DIGEST.fullmatch(sha256):
            raise ArtifactCorrupt(f"{sha256!r} is not a digest")
        return self.root / "sha256" / sha256[:2]


def size_at(directory: int, name: str) -> int:
    """Return the size of a file in a directory, 0 if there is none."""
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False).st_size
    except FileNotFoundError:
        return 0
