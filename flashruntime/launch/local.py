"""Launches processes of this machine, each below a keeper that outlives neither them nor us."""

import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from threading import Event, Lock, Thread
from typing import Any

from flashruntime.launch import keeper, memory, stacks
from flashruntime.launch.diagnose import explain_exit, explain_spawn_error
from flashruntime.launch.environment import is_inherited
from flashruntime.launch.error_file import read_errors
from flashruntime.launch.spec import LaunchSpec
from flashruntime.protocol.failures import EndedBy, Evidence

_LOG = logging.getLogger(__name__)


class LocalLauncher:
    """Starts one keeper a process.

    With `adopt_orphans` this process becomes a subreaper too and kills what a keeper that was
    itself killed leaves behind; it must then have no children of its own.
    """

    def __init__(self, *, adopt_orphans: bool = False) -> None:
        self._adopt_orphans = adopt_orphans
        if adopt_orphans:
            keeper.become_subreaper()

    def launch(self, spec: LaunchSpec, on_end: Callable[[], None] = lambda: None) -> "LocalProcess":
        """Start `spec`; `on_end` is called once, from another thread, when it has ended."""
        return LocalProcess(spec, on_end, self._end_orphans)

    def _end_orphans(self) -> None:
        if self._adopt_orphans:
            keeper.signal_each(keeper.descendants(os.getpid()), signal.SIGKILL)


class LocalProcess:
    """A process of this machine with all that it starts."""

    def __init__(
        self, spec: LaunchSpec, on_end: Callable[[], None], end_orphans: Callable[[], None]
    ) -> None:
        self._spec = spec
        self._on_end = on_end
        self._end_orphans = end_orphans
        self._evidence: Evidence | None = None
        self._ended = Event()
        self._orders = Lock()
        self.pid: int | None = None
        self._killed_before = memory.oom_kills()
        self._keeper = subprocess.Popen(
            [sys.executable, "-I", "-S", keeper.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            env={name: value for name, value in os.environ.items() if is_inherited(name)},
        )
        self._tell(json.dumps(_request(spec)))
        Thread(target=self._follow, name="launch-follow", daemon=True).start()

    def stop(self, grace_s: float) -> None:
        """Send SIGTERM; after `grace_s` the whole tree is killed. The nearest deadline counts."""
        self._tell(f"stop {max(0.0, grace_s):.3f}")

    def dump_stacks(self) -> int:
        """Ask each Python of the tree that listens to print its stacks; return how many were."""
        return stacks.dump(keeper.descendants(self._keeper.pid))

    def wait(self, timeout_s: float | None = None) -> Evidence | None:
        """Return how it ended, or None if it has not within `timeout_s`."""
        self._ended.wait(timeout_s)
        return self._evidence

    def _tell(self, line: str) -> None:
        with self._orders:
            assert self._keeper.stdin is not None  # noqa: S101 (opened as a pipe above)
            try:
                self._keeper.stdin.write(line.encode() + b"\n")
                self._keeper.stdin.flush()
            except (BrokenPipeError, ValueError):
                _LOG.debug("the keeper of %s has ended already", self._spec.argv[:1])

    def _follow(self) -> None:
        try:
            evidence = self._outcome()
            killed = memory.risen(self._killed_before, memory.oom_kills())
            self._evidence = evidence.model_copy(update={"oom_kills": killed})
        except Exception as error:  # noqa: BLE001 (thread boundary: whoever waits must learn of it)
            _LOG.exception("the end of %s cannot be explained", self._spec.argv[:1])
            why = f"its end cannot be explained: {type(error).__name__}"
            self._evidence = Evidence(ended_by=EndedBy.WORKER_ERROR, message=why)
        self._hang_up()
        self._ended.set()
        self._on_end()

    def _hang_up(self) -> None:
        """Close the keeper's pipes; an order that it never read is left in the buffer of one."""
        with self._orders:
            for pipe in (self._keeper.stdin, self._keeper.stdout):
                with suppress(OSError):
                    assert pipe is not None  # noqa: S101 (opened as a pipe above)
                    pipe.close()

    def _outcome(self) -> Evidence:
        report: dict[str, Any] = {}
        try:
            assert self._keeper.stdout is not None  # noqa: S101 (opened as a pipe above)
            for line in self._keeper.stdout:
                report |= json.loads(line)
                self.pid = report.get("pid")
        except (OSError, ValueError):
            _LOG.exception("the keeper's report cannot be read")
        keeper_code = self._keeper.wait()
        if "status" not in report and "spawn_error" not in report:
            self._end_orphans()
        return _evidence(self._spec, report, keeper_code)


def _request(spec: LaunchSpec) -> dict[str, Any]:
    return {
        "argv": spec.argv,
        "cwd": str(spec.cwd),
        "env": dict(spec.env),
        "log": str(spec.log_path),
    }


def _evidence(spec: LaunchSpec, report: dict[str, Any], keeper_code: int) -> Evidence:
    if "spawn_error" in report:
        error = report["spawn_error"]
        return Evidence(
            ended_by=EndedBy.SPAWN_ERROR,
            error_type=error["type"],
            message=explain_spawn_error(spec, error["errno"], error["text"]),
        )
    status = report.get("status")
    if status is None:
        why = f"its keeper ended with {keeper_code}, and the process with it"
        if "status" in report:
            why = "the process cannot be killed"
        return Evidence(ended_by=EndedBy.WORKER_ERROR, message=why)
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
    code = None if number else os.WEXITSTATUS(status)
    if report["stopped"]:
        return Evidence(ended_by=EndedBy.STOPPED, exit_code=code, signal=number)
    if number:
        return Evidence(ended_by=EndedBy.SIGNAL, signal=number)
    told = read_errors(spec.error_file) if code else {}
    if code and not told:
        told = {"message": explain_exit(spec, code)}
    return Evidence(ended_by=EndedBy.EXIT, exit_code=code, **told)
