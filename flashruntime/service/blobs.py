"""Content-addressed bytes on disk: `<root>/sha256/<two hex>/<64 hex>`.

An upload is hashed while it is written to `<root>/tmp`, fsynced, and renamed into place; what was
cut short leaves nothing behind. One process owns a root. No symlink is followed below it.
"""

import fcntl
import hashlib
import os
import re
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO
from uuid import uuid4

from flashruntime.errors import ArtifactCorrupt, ConfigError, StoreLocked, StoreUnavailable
from flashruntime.service.errors import BadHeader, TooLarge

_DIGEST = re.compile(r"[0-9a-f]{64}")
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class BlobStore:
    """The blobs below a root; thread-safe. `open` takes the root, `close` gives it back."""

    def __init__(self, root: Path, max_bytes: int) -> None:
        self.root = root
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
        for name in ("sha256", "tmp"):
            (self.root / name).mkdir(mode=0o700, exist_ok=True)
            os.close(os.open(self.root / name, _DIRECTORY))
        for leftover in (self.root / "tmp").iterdir():
            if leftover.is_symlink() or not leftover.is_dir():
                leftover.unlink()

    def close(self) -> None:
        """Give the root back."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def upload(self) -> "Upload":
        """Begin an upload; close it on every path."""
        return Upload(self)

    def read(self, sha256: str, size_bytes: int) -> BinaryIO:
        """Open a blob for reading; raise ArtifactCorrupt if it is gone or its size differs."""
        try:
            shard = os.open(self._shard(sha256), _DIRECTORY)
            try:
                flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
                file = os.fdopen(os.open(sha256, flags, dir_fd=shard), "rb", buffering=0)
            finally:
                os.close(shard)
        except OSError as error:
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
        descriptor = os.open(shard, _DIRECTORY)
        try:
            os.rename(self.root / "tmp" / part, sha256, dst_dir_fd=descriptor)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _shard(self, sha256: str) -> Path:
        if not _DIGEST.fullmatch(sha256):
            raise ArtifactCorrupt(f"{sha256!r} is not a digest")
        return self.root / "sha256" / sha256[:2]


class Upload:
    """One upload, driven by one thread at a time; one that is closed unfinished leaves nothing."""

    def __init__(self, store: BlobStore) -> None:
        self._store = store
        self._part = uuid4().hex
        self._digest = hashlib.sha256()
        self._file: BinaryIO | None = None
        self.size_bytes = 0

    def close(self) -> None:
        """Remove what was not finished."""
        if self._file is not None:
            self._file.close()
            self._path.unlink(missing_ok=True)

    @property
    def _path(self) -> Path:
        return self._store.root / "tmp" / self._part

    def write(self, data: bytes) -> None:
        """Append; raise TooLarge beyond the limit, StoreUnavailable where the disk refuses."""
        self.size_bytes += len(data)
        check_size(self.size_bytes, self._store.max_bytes)
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
        """Append, make all durable, return the digest; raise BadHeader if it is not `expected`."""
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
    if not _DIGEST.fullmatch(header.lower()):
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
    descriptor = os.open(path, _DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
