"""What the checkpoint tests share: a tree, attempts on it, and a real kill at a named call."""

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from flashruntime.checkpoint import Chain, Claim, Resume, Snapshot, inspect
from flashruntime.checkpoint.store import newest

CHANGING_CALLS = {"open", "write", "fsync", "rename", "mkdir", "link", "unlink", "rmdir"}


@dataclass
class Tree:
    """A checkpoint tree and the attempts that used it, in order."""

    root: Path
    job_id: str = "job-1"
    attempts: list[Chain] = field(default_factory=list)

    def begin(self, name: str | None = None, keep: int | None = None) -> Chain:
        number = len(self.attempts)
        claim = Claim(name or f"attempt-{number}", self.job_id, number)
        self.attempts.append(Chain.begin(self.root, claim, keep=keep))
        return self.attempts[-1]

    def step(self, step: int) -> Path:
        return self.root / f"step-{step:06d}"

    def kinds(self) -> dict[str, str]:
        return {report.path: report.kind.value for report in inspect(self.root)}

    def newest_of_all(self) -> Resume | None:
        return newest(self.root, lambda _: True)[0]


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path / "ckpt")


def body(step: int, size_bytes: int = 3000) -> dict[str, bytes]:
    """Two parts whose content depends on the step."""
    return {"model.bin": bytes([step % 256]) * size_bytes, "optimizer.bin": b"o%d" % step}


@pytest.fixture
def save() -> Callable[..., Any]:
    def saved(chain: Chain, *steps: int, size_bytes: int = 3000) -> None:
        for step in steps:
            chain.save(Snapshot(step, body(step, size_bytes)))

    return saved


@pytest.fixture
def content() -> Callable[[int], dict[str, bytes]]:
    return body


@pytest.fixture
def killed_at_call() -> Callable[[int, Callable[[], object]], str | None]:
    """Run an action in a child process that SIGKILLs itself before its k-th changing call.

    Returns the name of that call, or None where the action ended before.
    """

    def run(number: int, action: Callable[[], object]) -> str | None:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            _die_before(number, writer)
            try:
                action()
            except BaseException:  # noqa: BLE001 (a child must never run the rest of the suite)
                os._exit(1)
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as pipe:
            call = pipe.read()
        status = os.waitpid(child, 0)[1]
        if call:
            assert os.WTERMSIG(status) == signal.SIGKILL
            return call
        assert status == 0
        return None

    return run


def _die_before(number: int, writer: int) -> None:
    seen = 0

    def watch(_frame: object, event: str, call: Any) -> None:
        nonlocal seen
        if event != "c_call" or call.__module__ != "posix" or call.__name__ not in CHANGING_CALLS:
            return
        seen += 1
        if seen == number:
            sys.setprofile(None)
            os.write(writer, call.__name__.encode())
            os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(watch)
