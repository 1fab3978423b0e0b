"""Large parts are written past the page cache, and every byte is there all the same."""

import errno
import mmap
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashruntime.checkpoint import files

PAGE = mmap.PAGESIZE
LARGE = files.DIRECT_BYTES


def written(path: Path, data: files.Buffer) -> int:
    """Write a new file and return its descriptor, for reading."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    files.write_all(descriptor, data)
    return descriptor


@given(
    size_bytes=st.sampled_from([0, 1, PAGE, LARGE - 1, LARGE, LARGE + 1, LARGE + PAGE + 7]),
    offset=st.sampled_from([0, 1, 512, PAGE]),
    before=st.sampled_from([b"", b"x"]),
)
def test_every_byte_is_written_however_it_is_aligned(
    tmp_path_factory: pytest.TempPathFactory, size_bytes: int, offset: int, before: bytes
) -> None:
    """Size, address and place in the file may all be unaligned."""
    memory = memoryview(mmap.mmap(-1, LARGE + 3 * PAGE))
    memory[offset : offset + size_bytes] = os.urandom(size_bytes)
    data = memory[offset : offset + size_bytes]
    path = tmp_path_factory.mktemp("direct") / "part"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
    os.write(descriptor, before)
    files.write_all(descriptor, data)
    os.close(descriptor)
    assert path.read_bytes() == before + bytes(data)


def test_read_only_memory_is_written_too(tmp_path: Path) -> None:
    """What cannot be aligned, such as bytes, goes through the cache."""
    data = os.urandom(LARGE + 5)
    os.close(written(tmp_path / "part", data))
    assert (tmp_path / "part").read_bytes() == data


def is_cached(descriptor: int) -> bool:
    """Whether the first page can be read without waiting for the disk."""
    try:
        os.preadv(descriptor, [bytearray(PAGE)], 0, os.RWF_NOWAIT)
    except BlockingIOError:
        return False
    return True


def test_a_large_part_takes_no_room_in_the_page_cache(tmp_path: Path) -> None:
    """What the cache held for others stays there."""
    try:
        os.close(os.open(tmp_path / "probe", os.O_WRONLY | os.O_CREAT | os.O_DIRECT))
        descriptor = written(tmp_path / "small", b"x" * PAGE)
        assert is_cached(descriptor)
        os.close(descriptor)
    except OSError as error:
        if error.errno not in {errno.EINVAL, errno.EOPNOTSUPP}:
            raise
        pytest.skip("no direct writes, or no word on the cache, here (tmpfs); a local disk has")
    memory = memoryview(mmap.mmap(-1, LARGE))
    memory[:] = os.urandom(LARGE)
    descriptor = written(tmp_path / "part", memory)
    assert not is_cached(descriptor)
    os.close(descriptor)
