"""The output of attempts: one file each, `<root>/<job>/<task>-<attempt>.log`.

Output is appended at stated offsets, so that a repeated call changes nothing. It is not fsynced:
after a power loss the next offset leaves a gap, and the worker sends what is missing again.
"""

import os
import re
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from flashruntime.errors import NotFound, StoreUnavailable
from flashruntime.service.errors import LogGap

MAX_LOG_BYTES = 64 * 1024 * 1024
MAX_TAIL_BYTES = 4 * 1024 * 1024
MAX_ANSWER_BYTES = 16 * 1024 * 1024
BLOCK_BYTES = 64 * 1024
DROPPED = (
    b"\n[the coordinator keeps the first %d bytes of an attempt's output; the rest is dropped]\n"
)
_NAME = re.compile(r"([0-9]{5,})-([0-9]{5,})\.log")


class AttemptLogs:
    """The log files below a root; one thread writes."""

    def __init__(self, root: Path, max_bytes: int = MAX_LOG_BYTES) -> None:
        self.root = root
        self.max_bytes = max_bytes

    def append(self, job_id: str, task: int, attempt: int, offset: int, data: bytes) -> int:
        """Store `data`, which begins at byte `offset` of the output; return the length so far.

        Raises LogGap if bytes before `offset` are missing, StoreUnavailable if the disk refuses.
        """
        path = self.root / job_id / f"{task:05d}-{attempt:05d}.log"
        end = offset + len(data)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(path, flags, 0o600), "ab", buffering=0) as file:
                size = os.fstat(file.fileno()).st_size
                if size > self.max_bytes:
                    return max(size, end)
                if offset > size:
                    raise LogGap(size, offset)
                self._write(file, data[size - offset :], self.max_bytes - size)
        except OSError as error:
            raise StoreUnavailable(
                f"{path} takes no more output ({error.strerror}); free space there"
            ) from error
        return max(size, end)

    def tail(self, job_id: str, lines: int, task: int | None, attempt: int | None) -> str:
        """Return the last lines of the newest attempt of each task, or of those selected.

        Raises NotFound if a task or attempt is named that has no output.
        """
        chosen = self._chosen(job_id, task, attempt)
        if not chosen and (task is not None or attempt is not None):
            raise NotFound(
                f"job {job_id} has no output of task {task} attempt {attempt}; leave both out "
                "for the newest attempt of each task"
            )
        parts: list[str] = []
        room = MAX_ANSWER_BYTES
        for number, (path, title) in enumerate(chosen):
            text = read_tail(path, lines, min(room, MAX_TAIL_BYTES))
            room -= len(text)
            parts.append(text if len(chosen) == 1 else f"==> {title} <==\n{_ended(text)}")
            if room <= 0 and number + 1 < len(chosen):
                parts.append(f"[{len(chosen) - number - 1} more tasks; name one with ?task=]\n")
                break
        return "".join(parts)

    def delete(self, job_id: str, limit: int) -> bool:
        """Delete some of a job's output; return whether there was any."""
        place = self.root / job_id
        files = list(islice(self._files(job_id), limit))
        for path in files:
            path.unlink(missing_ok=True)
        if not files:
            with suppress(FileNotFoundError):
                place.rmdir()
        return bool(files)

    def _chosen(self, job_id: str, task: int | None, attempt: int | None) -> list[tuple[Path, str]]:
        newest: dict[int, tuple[int, Path]] = {}
        for path in self._files(job_id):
            match = _NAME.fullmatch(path.name)
            if match is None:
                continue
            of_task, number = int(match[1]), int(match[2])
            if task not in {None, of_task} or attempt not in {None, number}:
                continue
            newest[of_task] = max(newest.get(of_task, (0, path)), (number, path))
        return [
            (path, f"task {of_task} attempt {number}")
            for of_task, (number, path) in sorted(newest.items())
        ]

    def _files(self, job_id: str) -> list[Path]:
        try:
            return list((self.root / job_id).iterdir())
        except FileNotFoundError:
            return []

    def _write(self, file: BinaryIO, data: bytes, room: int) -> None:
        view = memoryview(data if len(data) <= room else data[:room] + DROPPED % self.max_bytes)
        while view:
            view = view[file.write(view) :]


def read_tail(path: Path, lines: int, max_bytes: int) -> str:
    """Return the last `lines` lines of a file, at most `max_bytes` of it, read from its end.

    Bytes that are not UTF-8 become U+FFFD.
    """
    if lines <= 0:
        return ""
    blocks: list[bytes] = []
    found = 0
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
        start = file.seek(0, os.SEEK_END)
        floor = max(0, start - max_bytes)
        while start > floor and found <= lines:
            size = min(BLOCK_BYTES, start - floor)
            start -= size
            file.seek(start)
            blocks.append(file.read(size))
            found += blocks[-1].count(b"\n")
    data = b"".join(reversed(blocks))
    kept = data.split(b"\n")
    unfinished = 0 if data.endswith(b"\n") else 1
    wanted = lines + 1 - unfinished
    return b"\n".join(kept[-wanted:]).decode("utf-8", "replace")


def _ended(text: str) -> str:
    return text if not text or text.endswith("\n") else text + "\n"
