"""Take away the room of a volume, or the right to write, and look at what is left of both.

Request: {"do": "fill" | "drain" | "forbid" | "permit" | "probe" | "remount", "root"}, for remount
also {"read_only", "timeout_s"}. Answer: {"at_ns", "refused", "total_bytes", "free_bytes", "errno",
"tries"}; `errno` names what the remount got, or else a small durable write. Only a file system that
is nobody else's is filled or remounted: a directory of a larger disk is `refused`.
"""

import ctypes
import errno
import os
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

FILLER = ".chaos-filler"
PROBE = ".chaos-probe"
BLOCKS_BYTES = (1 << 20, 4096, 64)
PROBE_BYTES = 4096
MOST_BYTES = 4 << 30
MS_RDONLY, MS_REMOUNT = 1, 32
POLL_S = 0.005
OWN_TYPES = {"tmpfs", "ext4"}


def refusal(root: str) -> str | None:
    """Return why this file system is not to be touched, None where it is the volume's own."""
    lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    mounts = [line.split() for line in lines]
    found = [words for words in mounts if words[4] == root]
    if not found:
        return f"{root} is no mount point"
    words = found[-1]
    kind = words[words.index("-") + 1]
    status = os.statvfs(root)
    if words[3] != "/" or kind not in OWN_TYPES:
        return f"the volume is a directory of a larger {kind} file system: it is not touched"
    if status.f_blocks * status.f_frsize > MOST_BYTES:
        return f"the volume has more than {MOST_BYTES} bytes: it is not touched"
    return None


def fill(root: str) -> None:
    """Write a filler until nothing goes in any more; again where room came back."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    try:
        descriptor = os.open(f"{root}/{FILLER}", flags, 0o600)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        return
    try:
        for size_bytes in BLOCKS_BYTES:
            write_all(descriptor, bytes(size_bytes))
    finally:
        os.close(descriptor)


def write_all(descriptor: int, block: bytes) -> None:
    """Write the block again and again until there is no room for it."""
    try:
        while os.write(descriptor, block) > 0:
            pass
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise


def drain(root: str) -> None:
    """Remove the filler; a missing one is fine."""
    Path(root, FILLER).unlink(missing_ok=True)


def set_permission(root: str, write: bool) -> None:
    """Give or take the right to write to each directory; one that vanishes meanwhile is fine."""
    for directory, _, _ in os.walk(root):
        with suppress(FileNotFoundError):
            mode = stat.S_IMODE(Path(directory).stat().st_mode)
            Path(directory).chmod(mode | 0o200 if write else mode & ~0o222)


def probe(root: str) -> str | None:
    """Return the name of the error that a small durable write gets, None where it goes well."""
    path = Path(root, f"{PROBE}-{os.getpid()}")
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, bytes(PROBE_BYTES))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
            path.unlink()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error.errno))
    return None


def remount(root: str, read_only: bool, timeout_s: float) -> tuple[str | None, int]:
    """Change the file system itself, so that every container is hit; busy while one writes.

    Return the name of the last error, None where it went well, and how often it was tried.
    """
    library = ctypes.CDLL(None, use_errno=True)
    flags = MS_REMOUNT | (MS_RDONLY if read_only else 0)
    deadline, tries = time.monotonic() + timeout_s, 0
    while True:
        tries += 1
        if library.mount(None, root.encode(), None, ctypes.c_ulong(flags), None) == 0:
            return None, tries
        name = errno.errorcode.get(ctypes.get_errno(), "unknown")
        if name != "EBUSY" or time.monotonic() >= deadline:
            return name, tries
        time.sleep(POLL_S)


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Do what is asked, and tell what is there afterwards."""
    root, what = request["root"], request["do"]
    refused = refusal(root) if what in {"fill", "remount"} else None
    failed, tries = None, 1
    if refused is None and what == "fill":
        fill(root)
    elif refused is None and what == "remount":
        failed, tries = remount(root, request["read_only"], request["timeout_s"])
    elif what == "drain":
        drain(root)
    elif what in {"forbid", "permit"}:
        set_permission(root, what == "permit")
    at_ns = time.monotonic_ns()
    status = os.statvfs(root)
    return {
        "at_ns": at_ns,
        "refused": refused,
        "total_bytes": status.f_blocks * status.f_frsize,
        "free_bytes": status.f_bavail * status.f_frsize,
        "errno": failed if what == "remount" else probe(root),
        "tries": tries,
    }
