"""Content-addressed bytes on disk: `<root>/sha256/<two hex>/<64 hex>`.

An upload is hashed while it is written to `<root>/tmp`, fsynced, and renamed into place; what was
cut short leaves nothing behind. What rotted lies in `<root>/quarantine`. One process owns a root.
No symlink is followed below it.
"""

import errno
import fcntl
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO
from uuid import uuid4

from flashruntime.errors import ArtifactCorrupt, ConfigError, StoreLocked, StoreUnavailable
from flashruntime.service.blob_files import DIGEST, DIRECTORY, GONE, BlobFiles, size_at
from flashruntime.service.blob_guard import BlobGuard
from flashruntime.service.errors import BadHeader, TooLarge


class BlobStore(BlobFiles):
    """The blobs below a root; thread-safe. `open` takes the root, `close` gives it back.

    A blob has at most `max_bytes`, all of them together `max_total_bytes` (0: no bound).
    """

    def __init__(self, root: Path, max_bytes: int, max_total_bytes: int = 0) -> None:
        super().__init__(root, BlobGuard(max_total_bytes))
        self.max_bytes = max_bytes
        self._lock = -1

    def open(self) -> None:
        """Take the root for this process and remove what dead ones left half written.

        Raises ConfigError if it cannot be written, StoreLocked if another process has it.
        """
        require_writable(self.root, "FLASHML_ARTIFACT_DIR")
        self._lock = os.open(self.root / "blobs.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self.close()
            raise StoreLocked(
                f"artifact directory {self.root} is in use by another coordinator; stop that one "
                "or set FLASHML_ARTIFACT_DIR to another directory"
            ) from error
        for name in ("sha256", "tmp", "quarantine"):
            (self.root / name).mkdir(mode=0o700, exist_ok=True)
            os.close(os.open(self.root / name, DIRECTORY))
        for leftover in (self.root / "tmp").iterdir():
            if leftover.is_symlink() or not leftover.is_dir():
                leftover.unlink()

    def close(self) -> None:
        """Give the root back."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def upload(self, check: Callable[[int], None] | None = None) -> "Upload":
        """Begin an upload; close it on every path. `check` is told its size as it grows."""
        return Upload(self, check)

    def read(self, sha256: str, size_bytes: int) -> BinaryIO:
        """Open a blob for reading; raise ArtifactCorrupt if it is gone or its size differs.

        StoreUnavailable where this process, or the system, cannot open files at this moment.
        """
        try:
            shard = os.open(self._shard(sha256), DIRECTORY)
            try:
                flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
                file = os.fdopen(os.open(sha256, flags, dir_fd=shard), "rb", buffering=0)
            finally:
                os.close(shard)
        except OSError as error:
            if error.errno not in {*GONE, errno.EIO}:
                raise StoreUnavailable(
                    f"{self.root} cannot be read now ({error.strerror}); try again later"
                ) from error
            raise ArtifactCorrupt(
                f"the bytes of {sha256} cannot be read ({error.strerror}); upload them again"
            ) from error
        found = os.fstat(file.fileno()).st_size
        if found != size_bytes:
            file.close()
            raise ArtifactCorrupt(
                f"the bytes of {sha256} are damaged ({found} of {size_bytes} bytes); "
                "upload them again"
            )
        return file

    def adopt(self, part: str, sha256: str) -> None:
        """Move a finished upload into place, durably."""
        shard = self._shard(sha256)
        try:
            shard.mkdir(mode=0o700)
        except FileExistsError:
            pass
        else:
            _fsync_directory(self.root / "sha256")
        descriptor = os.open(shard, DIRECTORY)

        def put() -> int:
            before = size_at(descriptor, sha256)
            os.rename(self.root / "tmp" / part, sha256, dst_dir_fd=descriptor)
            return size_at(descriptor, sha256) - before

        try:
            self.guard.replace(sha256, put)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        (self.root / "quarantine" / sha256).unlink(missing_ok=True)


class Upload:
    """One upload, driven by one thread at a time; one that is closed unfinished leaves nothing."""

    def __init__(self, store: BlobStore, check: Callable[[int], None] | None = None) -> None:
        self._store = store
        self._check = check
        self._counted_bytes = 0
        self._pinned: str | None = None
        self._part = uuid4().hex
        self._digest = hashlib.sha256()
        self._file: BinaryIO | None = None
        self.size_bytes = 0

    def close(self) -> None:
        """Remove what was not finished; what was must be named by a row by now."""
        self._store.guard.arrived(self._counted_bytes)
        self._counted_bytes = 0
        if self._pinned is not None:
            self._store.guard.unpin(self._pinned)
            self._pinned = None
        if self._file is not None:
            self._file.close()
            self._path.unlink(missing_ok=True)

    @property
    def _path(self) -> Path:
        return self._store.root / "tmp" / self._part

    def write(self, data: bytes) -> None:
        """Append; raise TooLarge or what `check` raises, StoreUnavailable if there is no room."""
        self.size_bytes += len(data)
        check_size(self.size_bytes, self._store.max_bytes)
        if self._check is not None:
            self._check(self.size_bytes)
        self._store.guard.arrive(len(data))
        self._counted_bytes += len(data)
        try:
            if self._file is None:
                self._file = self._path.open("xb", buffering=0)
            self._digest.update(data)
            view = memoryview(data)
            while view:
                view = view[self._file.write(view) :]
        except OSError as error:
            raise _refused(self._store.root, error) from error

    def finish(self, data: bytes, expected: str | None) -> str:
        """Append, make all durable, return the digest; raise BadHeader if it is not `expected`.

        The blob stays pinned until `close`.
        """
        self.write(data)
        found = self._digest.hexdigest()
        if expected is not None and found != expected:
            raise BadHeader(
                f"the {self.size_bytes} bytes received hash to {found}, X-Sha256 says {expected}; "
                "send them again"
            )
        assert self._file is not None  # noqa: S101 (opened by the write above)
        try:
            os.fsync(self._file.fileno())
            self._store.guard.pin(found)
            self._pinned = found
            self._store.adopt(self._part, found)
        except OSError as error:
            raise _refused(self._store.root, error) from error
        return found


def check_size(size_bytes: int, max_bytes: int) -> None:
    """Raise TooLarge if `size_bytes` exceeds the limit of an artifact."""
    if size_bytes > max_bytes:
        raise TooLarge(
            f"the artifact has more than {max_bytes} bytes; split it, or raise "
            "FLASHML_MAX_ARTIFACT_BYTES on the coordinator"
        )


def stated_digest(header: str | None) -> str | None:
    """Return the digest in an X-Sha256 header in lower case; raise BadHeader if it is none."""
    if header is None:
        return None
    if not DIGEST.fullmatch(header.lower()):
        raise BadHeader(f"X-Sha256 {header[:80]!r} must be 64 hexadecimal digits and nothing else")
    return header.lower()


def require_writable(directory: Path, variable: str) -> None:
    """Create `directory` where it is missing; raise ConfigError unless files can be made in it."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise ConfigError(
            f"{variable}={directory} must be a directory that uid {os.getuid()} can write "
            f"({error.strerror}); change its owner or set {variable} to another one"
        ) from error


def check_room(directory: Path) -> None:
    """Raise StoreUnavailable unless a file can be made durable in `directory`."""
    try:
        with TemporaryFile(dir=directory, buffering=0) as probe:
            probe.write(bytes(4096))
            os.fsync(probe.fileno())
    except OSError as error:
        raise _refused(directory, error) from error


def _refused(root: Path, error: OSError) -> StoreUnavailable:
    return StoreUnavailable(f"{root} takes no more bytes ({error.strerror}); free space there")


def _fsync_directory(path: Path) -> None:
    descriptor = os.open(path, DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
