"""Directories of a worker: one for each attempt, below one that a lock marks as in use."""

import fcntl
import os
import shutil
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from time import monotonic, sleep
from uuid import uuid4

from flashruntime.errors import ConfigError
from flashruntime.launch.outputs import Places
from flashruntime.protocol.base import check_key
from flashruntime.worker import events

GONE = ".gone-"
PATIENCE_S = 0.5
RETRY_S = 0.01


@dataclass(frozen=True, slots=True)
class Workspace:
    """The private directory of one attempt."""

    root: Path

    @property
    def files(self) -> Path:
        """The working directory of the process, with the inputs in it."""
        return self.root / "work"

    @property
    def output(self) -> Path:
        """FLASHML_OUTPUT_DIR."""
        return self.root / "output"

    @property
    def places(self) -> Places:
        """Where the process leaves files."""
        return Places(self.output, self.files)

    @property
    def log(self) -> Path:
        """All that the process printed."""
        return self.root / "launcher.log"

    @property
    def step_file(self) -> Path:
        """FLASHML_STEP_FILE."""
        return self.root / "step.json"

    @property
    def error_file(self) -> Path:
        """FLASHML_ERROR_FILE."""
        return self.root / "error.json"

    @property
    def torchrun_error_file(self) -> Path:
        """TORCHELASTIC_ERROR_FILE, where a job is launched by torchrun."""
        return self.root / "torchrun-error.json"

    def create(self) -> None:
        """Make the directories; the attempt's must not exist yet."""
        self.root.mkdir(parents=True, mode=0o700)
        self.files.mkdir()
        self.output.mkdir()

    def remove(self) -> None:
        """Remove all of it; what cannot be removed is logged and left."""
        remove_tree(self.root)


class WorkerHome:
    """The worker's own directory below the work directory, locked while the worker lives."""

    def __init__(self, work_dir: Path, node_id: str) -> None:
        self._agents = work_dir / "agents"
        self._own = self._agents / node_id
        self._lock: int | None = None

    def open(self) -> None:
        """Lock the directory and remove what workers that were killed have left.

        Raises ConfigError if it is not writable or another worker of the same name is alive.
        """
        check_writable(self._agents, "FLASHML_WORK_DIR")
        try:
            self._lock = _lock_patiently(self._own)
        except OSError as error:
            raise _not_writable(self._own, "FLASHML_WORK_DIR", error) from error
        if self._lock is None:
            raise ConfigError(
                f"a worker named {self._own.name!r} already runs on {self._agents.parent}; "
                "give this one another FLASHML_NODE_ID or FLASHML_WORK_DIR"
            )
        for path in self._agents.iterdir():
            if path.name == self._own.name:
                remove_tree(path / "attempts")
            elif path.is_dir():
                _remove_unlocked(path)

    def workspace(self, lease_id: str) -> Workspace:
        """Return the directory of an attempt, not made yet."""
        return Workspace(self._own / "attempts" / check_key(lease_id))

    def close(self, *, keep: bool) -> None:
        """Remove the directory unless attempts are kept, and give up the lock."""
        if self._lock is None:
            return
        if not keep:
            _remove_at_once(self._own)
        os.close(self._lock)
        self._lock = None


def check_writable(path: Path, setting: str) -> None:
    """Make a directory and try to write there; ConfigError names the path, the user, the remedy."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise _not_writable(path, setting, error) from error


def _not_writable(path: Path, setting: str, error: OSError) -> ConfigError:
    return ConfigError(
        f"{setting}: {path} is not writable for uid {os.getuid()} ({error.strerror}); "
        "change its owner, or set the variable to another directory"
    )


def _remove_unlocked(path: Path) -> None:
    """Remove the directory of a worker that is gone; what is not ours is logged and left."""
    try:
        lock = _lock(path)
    except OSError as error:
        events.warning("directory_left", path=str(path), error=str(error))
        return
    if lock is not None:
        _remove_at_once(path)
        os.close(lock)


def _remove_at_once(path: Path) -> None:
    """Take a directory out of the way before it is removed, by whoever holds its lock.

    Should its worker start meanwhile, it makes one of its own, whose lock file nobody removes.
    """
    aside = path.with_name(f"{GONE}{uuid4().hex}")
    try:
        path.rename(aside)
    except OSError as error:
        events.warning("directory_left", path=str(path), error=str(error))
    else:
        remove_tree(aside)


def remove_tree(path: Path) -> None:
    """Remove a directory tree, also where a job took away its own permissions.

    What cannot be removed is logged and left.
    """
    if path.is_symlink():
        path.unlink()
    if not path.exists():
        return
    try:
        shutil.rmtree(path)
    except OSError:
        _open_up(path)
        try:
            shutil.rmtree(path)
        except OSError as error:
            events.warning("directory_left", path=str(path), error=str(error))


def _open_up(path: Path) -> None:
    with suppress(OSError):
        path.chmod(stat.S_IRWXU)
    for directory, names, _ in os.walk(path):
        for name in names:
            below = Path(directory, name)
            with suppress(OSError):
                if not below.is_symlink():
                    below.chmod(stat.S_IRWXU)


def _lock_patiently(directory: Path) -> int | None:
    """Lock a directory; one that another worker is about to remove is free in a moment."""
    until_s = monotonic() + PATIENCE_S
    while (lock := _lock(directory)) is None and monotonic() < until_s:
        sleep(RETRY_S)
    return lock


def _lock(directory: Path) -> int | None:
    """Lock a directory without waiting; None if somebody else holds it.

    A lock file that was removed meanwhile, with its directory, is made anew.
    """
    while True:
        directory.mkdir(exist_ok=True)
        try:
            handle = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if (directory / "lock").stat().st_ino == os.fstat(handle).st_ino:
                return handle
        except BlockingIOError:
            os.close(handle)
            return None
        except FileNotFoundError:
            pass
        os.close(handle)
