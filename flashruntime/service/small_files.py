"""Files of small objects: in place at once, on disk later, many at a time."""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from flashruntime.errors import StoreUnavailable

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_FILE = os.O_RDONLY | os.O_NOFOLLOW
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def place(root: Path, sha256: str, data: bytes) -> int:
    """Put a blob in place below the root of a BlobStore; it is on disk only after `sync`.

    Returns by how many bytes the store grew.
    """
    before = _size(f"{root}/sha256/{sha256[:2]}/{sha256}")
    part = f"{root}/tmp/{uuid4().hex}"  # noqa: S108 (a directory of our own)
    try:
        _write(part, data)
        try:
            os.rename(part, f"{root}/sha256/{sha256[:2]}/{sha256}")  # noqa: PTH104 (hot path)
        except FileNotFoundError:
            _shard(root, sha256).mkdir(mode=0o700, exist_ok=True)
            Path(part).rename(_shard(root, sha256) / sha256)
    except OSError as error:
        with suppress(OSError):
            Path(part).unlink()
        raise _refused(root, error) from error
    return len(data) - before


def _size(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except FileNotFoundError:
        return 0


def sync(root: Path, digests: Iterable[str]) -> None:
    """Return once blobs that were placed are on disk; those that are gone are left out."""
    names = list(digests)
    shards = {_shard(root, sha256) for sha256 in names}
    try:
        for sha256 in names:
            with suppress(FileNotFoundError):
                _fsync(_shard(root, sha256) / sha256, _FILE)
        for directory in (*shards, root / "sha256"):
            with suppress(FileNotFoundError):
                _fsync(directory, _DIRECTORY)
    except OSError as error:
        raise _refused(root, error) from error


def _write(path: str, data: bytes) -> None:
    descriptor = os.open(path, _NEW, 0o600)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
    finally:
        os.close(descriptor)


def _shard(root: Path, sha256: str) -> Path:
    return root / "sha256" / sha256[:2]


def _fsync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _refused(root: Path, error: OSError) -> StoreUnavailable:
    return StoreUnavailable(f"{root} takes no more bytes ({error.strerror}); free space there")
