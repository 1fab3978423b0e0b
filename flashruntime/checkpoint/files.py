"""File operations that a checkpoint tree is made of: durable, and never through a symbolic link."""

import errno
import fcntl
import hashlib
import mmap
import os
import shutil
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flashruntime.errors import CheckpointError

Buffer = bytes | bytearray | memoryview

CHUNK_BYTES = 4 * 1024 * 1024
READ_CHUNK_BYTES = 512 * 1024
LARGE_BYTES = 1024 * 1024
DIRECT_BYTES = 1024 * 1024
DIRECT = getattr(os, "O_DIRECT", 0)
NO_DIRECT = {errno.EINVAL, errno.EOPNOTSUPP}
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
FILE_MODE = 0o644
NO_HARD_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS}


def words_of(error: OSError) -> str:
    """Return number and text of an error: by the number a full disk is told from a user's bug."""
    return str(error) if error.errno is None else f"[Errno {error.errno}] {error.strerror}"


@contextmanager
def directory(path: Path) -> Iterator[int]:
    """Yield a descriptor of the directory `path`, which must not itself be a symbolic link."""
    descriptor = os.open(path, DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def sync_directory(path: Path) -> None:
    """Make the entries of `path` durable."""
    with directory(path) as descriptor:
        os.fsync(descriptor)


def make_directory(path: Path) -> None:
    """Create `path` and its parents as needed, each durably."""
    missing = [path, *path.parents]
    missing = missing[: next(i for i, parent in enumerate(missing) if parent.exists())]
    for each in reversed(missing):
        each.mkdir(exist_ok=True)
        sync_directory(each.parent)


def create(folder: int, name: str) -> int:
    """Create the file `name` in the open directory `folder`; return its descriptor."""
    return os.open(name, CREATE, FILE_MODE, dir_fd=folder)


def write_all(descriptor: int, data: Buffer) -> None:
    """Write all of `data`; large data past the page cache, which others need, where that can be.

    A copy into the cache would take a core from the training for as long, and fsync would wait for
    the disk all the same. What is not aligned to pages, and file systems without direct writes,
    go through the cache (open(2), O_DIRECT).
    """
    view = memoryview(data).cast("B")
    whole = len(view) - len(view) % mmap.PAGESIZE
    done = _write_direct(descriptor, view[:whole]) if whole >= DIRECT_BYTES else 0
    while done < len(view):
        done += os.write(descriptor, view[done : done + CHUNK_BYTES])


def _write_direct(descriptor: int, view: memoryview) -> int:
    """Write past the page cache; return how many bytes of whole pages were written so."""
    flags, done = fcntl.fcntl(descriptor, fcntl.F_GETFL), 0
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | DIRECT)
        while done < len(view):
            done += os.write(descriptor, view[done:])
    except OSError as error:
        if error.errno not in NO_DIRECT:
            raise
    finally:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags)
    return done


def sha256_of(data: Buffer) -> str:
    """Return the digest of `data`, without holding other threads up."""
    return hashlib.sha256(data).hexdigest()


def write_file(folder: int, name: str, data: Buffer) -> None:
    """Create `name` in the open directory `folder`, write and fsync it."""
    descriptor = create(folder, name)
    try:
        write_all(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def opened(folder: int, name: str) -> Iterator[tuple[int, int]]:
    """Yield descriptor and size of the regular file `name`; CheckpointError says why it is none."""
    try:
        descriptor = os.open(name, READ, dir_fd=folder)
    except OSError as error:
        raise CheckpointError(f"cannot be opened: {error.strerror}") from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise CheckpointError("is not a regular file")
        yield descriptor, status.st_size
    finally:
        os.close(descriptor)


def file_size(folder: int, name: str) -> int:
    """Return the size of the regular file `name`."""
    with opened(folder, name) as (_, size_bytes):
        return size_bytes


def read_file(folder: int, name: str, size_bytes: int) -> tuple[bytearray, str]:
    """Return the `size_bytes` bytes that the regular file `name` must have, and their sha256."""
    with opened(folder, name) as (descriptor, actual_bytes):
        if actual_bytes != size_bytes:
            raise CheckpointError(f"has {actual_bytes} bytes instead of {size_bytes}")
        data, digest = _room(size_bytes), hashlib.sha256()
        view, filled = memoryview(data), 0
        while filled < size_bytes:
            count = _read_into(descriptor, view[filled : filled + READ_CHUNK_BYTES])
            if count == 0:
                raise CheckpointError(f"ended after {filled} of {size_bytes} bytes")
            digest.update(view[filled : filled + count])
            filled += count
        return data, digest.hexdigest()


def _room(size_bytes: int) -> bytearray:
    """Return a bytearray to be filled; CPython lets a large one go unzeroed, under its lock."""
    if size_bytes < LARGE_BYTES or sys.implementation.name != "cpython":
        return bytearray(size_bytes)
    import ctypes  # noqa: PLC0415 (only processes that read large parts pay for it)

    make = ctypes.pythonapi.PyByteArray_FromStringAndSize
    make.argtypes, make.restype = [ctypes.c_char_p, ctypes.c_ssize_t], ctypes.py_object
    room = make(None, size_bytes)
    assert isinstance(room, bytearray)  # noqa: S101 (for the type checker)
    if sys.platform == "linux":
        _ask_for_huge_pages(ctypes.addressof(ctypes.c_char.from_buffer(room)), size_bytes)
    return room


def _ask_for_huge_pages(address: int, size_bytes: int) -> None:
    """Ask for fewer page faults, which cost more than reading a cached file; a no is no error.

    Source: madvise(2), MADV_HUGEPAGE; it takes whole pages, here those within the range.
    """
    import ctypes  # noqa: PLC0415 (as above)

    first = -(-address // mmap.PAGESIZE) * mmap.PAGESIZE
    end = (address + size_bytes) // mmap.PAGESIZE * mmap.PAGESIZE
    advise = ctypes.CDLL(None).madvise
    advise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    advise(first, end - first, mmap.MADV_HUGEPAGE)


def _read_into(descriptor: int, view: memoryview) -> int:
    try:
        return os.readv(descriptor, [view])
    except OSError as error:
        raise CheckpointError(f"cannot be read: {error.strerror}") from error


def read_small(path: Path, limit_bytes: int) -> bytes:
    """Return the content of a small regular file; CheckpointError says why it cannot be read."""
    try:
        with directory(path.parent) as folder:
            size_bytes = file_size(folder, path.name)
            if size_bytes > limit_bytes:
                raise CheckpointError(f"has {size_bytes} bytes, more than {limit_bytes}")
            return bytes(read_file(folder, path.name, size_bytes)[0])
    except OSError as error:
        raise CheckpointError(f"cannot be read: {error.strerror}") from error


def create_exclusively(path: Path, data: bytes, scratch_name: str) -> bool:
    """Create `path` durably with all of `data`, or return False because it exists already.

    A file system without hard links (FAT, some FUSE) gets the file written in place.
    """
    scratch = path.with_name(scratch_name)
    remove(scratch)
    with directory(path.parent) as folder:
        try:
            write_file(folder, scratch.name, data)
            _link_or_write(folder, scratch, path, data)
        except FileExistsError:
            return False
        finally:
            remove(scratch)
        os.fsync(folder)
    return True


def _link_or_write(folder: int, scratch: Path, path: Path, data: bytes) -> None:
    try:
        os.link(scratch, path, follow_symlinks=False)
    except OSError as error:
        if error.errno not in NO_HARD_LINKS:
            raise
        write_file(folder, path.name, data)


def remove(path: Path) -> None:
    """Remove a file, a link or a directory tree as far as possible; what is missing is no error.

    What another process adds to the tree meanwhile may stay.
    """
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
