"""Reading files that a job may have replaced by anything, and writing them whole."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import BinaryIO, cast


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading; OSError for anything else, a symlink included.

    Never blocks, as opening a FIFO would.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    handle = os.open(path, flags)
    if stat.S_ISREG(os.fstat(handle).st_mode):
        return os.fdopen(handle, "rb")
    os.close(handle)
    raise OSError(f"{path} is not a regular file")


@contextmanager
def replacing(to: Path) -> Iterator[BinaryIO]:
    """Open a file that takes the place of `to` when all of it is written; else nothing is left."""
    with NamedTemporaryFile(dir=to.parent, prefix=f".{to.name[:64]}.", delete=False) as part:
        try:
            yield cast(BinaryIO, part)
            part.flush()
            Path(part.name).replace(to)
        except BaseException:
            Path(part.name).unlink(missing_ok=True)
            raise
