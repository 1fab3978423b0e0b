"""Directories: of a run, held by one submitter at a time, and of a task, shared by its attempts."""

import fcntl
import os
import re
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from threading import Thread

from flashruntime.errors import Conflict, InvalidInput, NotFound
from flashruntime.launch.files import open_regular
from flashruntime.protocol.base import strict_dumps
from flashruntime.protocol.jobs import Params

LOCK_NAME = ".lock"
CONTROL_NAME = ".control"
TASK_NAME = "task.json"
_ATTEMPT = re.compile(r"task-000(?:-r([1-9][0-9]*))?")
Cancel = Callable[[str], None]
MAX_TASK_BYTES = 16 * 1024 * 1024


class RunHome:
    """The output directory of a run, locked while its submitter drives it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: int | None = None
        self._control: int | None = None

    def open(self) -> None:
        """Make and lock the directory; Conflict where another run has it."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            handle = os.open(self.path / LOCK_NAME, flags, 0o600)
        except OSError as error:
            raise InvalidInput(
                f"output_dir {self.path} cannot be used ({error.strerror}); name a directory that "
                f"uid {os.getuid()} may write"
            ) from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(handle, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(handle)
            raise Conflict(
                f"output_dir {self.path} is in use by another run (process {holder}); wait for it, "
                f"`flashruntime cancel {self.path}`, or name another directory"
            ) from error
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        self._lock = handle
        _OPEN.add(self)

    def listen(self, cancel: Cancel) -> None:
        """Let `request_cancel` from another process reach `cancel`, where the disk has FIFOs."""
        path = self.path / CONTROL_NAME
        with suppress(OSError):
            path.unlink(missing_ok=True)
            os.mkfifo(path, 0o600)
            self._control = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            Thread(
                target=_obey, args=(self._control, cancel), name="run-control", daemon=True
            ).start()

    def close(self) -> None:
        """Give the directory up."""
        if self._control is not None:
            (self.path / CONTROL_NAME).unlink(missing_ok=True)
            with suppress(OSError):
                os.write(self._control, b"q")
            self._control = None
        if self._lock is not None:
            # Closing would not do where a fork holds the file too.
            fcntl.flock(self._lock, fcntl.LOCK_UN)
            os.close(self._lock)
            self._lock = None
        _OPEN.discard(self)

    def leave(self) -> None:
        """In a fork, hold nothing of the directory: it is the parent's."""
        for handle in (self._lock, self._control):
            if handle is not None:
                os.close(handle)
        self._lock = self._control = None


_OPEN: set[RunHome] = set()


def _leave_all() -> None:
    for home in _OPEN:
        home.leave()
    _OPEN.clear()


os.register_at_fork(after_in_child=_leave_all)


def _obey(control: int, cancel: Cancel) -> None:
    word = os.read(control, 1)
    os.close(control)
    if word == b"c":
        cancel("cancelled by another process")


def request_cancel(output_dir: Path) -> None:
    """Ask the submitter of the run in `output_dir` to end it; NotFound where none is alive."""
    try:
        handle = os.open(
            output_dir / CONTROL_NAME, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        )
    except OSError as error:
        raise NotFound(f"no run is going on in {output_dir}") from error
    try:
        os.write(handle, b"c")
    finally:
        os.close(handle)


def is_held(output_dir: Path) -> bool:
    """Return whether a submitter drives a run in `output_dir`."""
    try:
        handle = os.open(output_dir / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


class TaskHome:
    """The directory of a task: its checkpoints, and one directory for each attempt."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def adopt(self, params: Params) -> Path | None:
        """Make the directory that of these params.

        One that belongs to others is renamed first: their checkpoints are not ours. Returns where
        it is now.
        """
        text, owner, aside = strict_dumps(params), self._owner(), None
        if owner is not None and owner != text:
            names = (f"{self.path.name}.old-{number}" for number in count(1))
            free = (place for name in names if not (place := self.path.with_name(name)).exists())
            aside = self.path.rename(next(free))
        self.path.mkdir(parents=True, exist_ok=True)
        if owner != text:
            (self.path / TASK_NAME).write_text(text, encoding="utf-8")
        return aside

    def _owner(self) -> str | None:
        try:
            with open_regular(self.path / TASK_NAME) as file:
                return file.read(MAX_TASK_BYTES).decode("utf-8", "replace")
        except OSError:
            return None

    def next_attempt(self) -> Path:
        """Return a directory for the next attempt, never one that is there."""
        self.path.mkdir(parents=True, exist_ok=True)
        found = (_ATTEMPT.fullmatch(entry.name) for entry in self.path.iterdir())
        suffixes = [int(match[1] or 0) for match in found if match]
        number = max(suffixes, default=-1) + 1
        return self.path / ("task-000" if number == 0 else f"task-000-r{number}")
