"""Launches processes of this machine, each below a keeper that outlives neither them nor us."""

import json
import logging
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from threading import Event, Lock, Thread
from typing import Any
from weakref import WeakSet

from flashruntime.launch import keepers, memory, processes, stacks, warm
from flashruntime.launch.cores import usable_cores
from flashruntime.launch.diagnose import explain_exit, explain_spawn_error
from flashruntime.launch.error_file import read_errors
from flashruntime.launch.keepers import Keepers
from flashruntime.launch.spec import LaunchSpec
from flashruntime.launch.warm import State
from flashruntime.protocol.failures import EndedBy, Evidence

_LOG = logging.getLogger(__name__)


class LocalLauncher:
    """Starts processes, each with a keeper.

    With `adopt_orphans` this process becomes a subreaper too and kills what a keeper leaves behind
    that was itself killed, after its server; it must then have no children of its own.
    """

    def __init__(self, *, adopt_orphans: bool = False) -> None:
        self._adopt_orphans = adopt_orphans
        self._live: WeakSet[LocalProcess] = WeakSet()
        self._launching = Lock()
        if adopt_orphans:
            processes.become_subreaper()
        with suppress(OSError):
            keepers.prepare()

    def launch(self, spec: LaunchSpec, on_end: Callable[[], None] = lambda: None) -> "LocalProcess":
        """Start `spec`; `on_end` is called once, from another thread, when it has ended."""
        launched = LocalProcess(spec, on_end, self._end_orphans)
        with self._launching:
            self._live.add(launched)
        return launched

    def _end_orphans(self) -> None:
        """Kill what no keeper keeps; those of other processes may have outlived their server."""
        if self._adopt_orphans:
            with self._launching:
                kept = {each.keeper_pid for each in self._live if not each.has_ended}
            spared = keepers.server_pids() | {pid for pid in kept if pid is not None}
            processes.signal_each(processes.descendants(os.getpid(), spared), signal.SIGKILL)


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
        self._is_stopped = False
        self._connection: socket.socket | None = None
        self._restock: Callable[[], None] = lambda: None
        self._settled = Event()
        self._killed_before = memory.oom_kills()
        self._dump: stacks.Dump | None = None
        self.pid: int | None = None
        self.keeper_pid: int | None = None
        self._warm = warm.find(spec)
        if self._warm is None or self._warm.state is not State.IMPORTING:
            self._connect()
        Thread(target=self._follow, name="launch-follow", daemon=True).start()

    def stop(self, grace_s: float) -> None:
        """Send SIGTERM; after `grace_s` the whole tree is killed. The nearest deadline counts."""
        with self._orders:
            self._is_stopped = True
            self._settled.set()
            try:
                if self._connection is not None:
                    self._connection.sendall(f"stop {max(0.0, grace_s):.3f}\n".encode())
            except OSError:
                _LOG.debug("the keeper of %s has ended already", self._spec.argv[:1])

    @property
    def has_ended(self) -> bool:
        """Whether all of it has ended."""
        return self._ended.is_set()

    def dump_stacks(self) -> int:
        """Ask each Python of the tree that listens to print its stacks; return how many were."""
        self._dump = stacks.Dump(processes.descendants(self.keeper_pid) if self.keeper_pid else [])
        return self._dump.count

    @property
    def is_dumping(self) -> bool:
        """Whether stacks that were asked for are not all printed yet."""
        return self._dump is not None and self._dump.goes_on

    def wait(self, timeout_s: float | None = None) -> Evidence | None:
        """Return how it ended, or None if it has not within `timeout_s`."""
        self._ended.wait(timeout_s)
        return self._evidence

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
        with self._orders:
            if self._connection is not None:
                self._connection.close()

    def _connect(self) -> None:
        """Find a keeper, unless the process has been stopped before it was started."""
        with self._orders:
            if self._is_stopped:
                return
            self._connection, source = self._open()
            self._restock = source.restock

    def _open(self) -> tuple[socket.socket, Keepers]:
        if self._warm is not None and self._spec.warm is not None:
            with suppress(OSError):
                return self._warm.open(self._spec, self._spec.warm)
        self._warm = None
        return keepers.open_cold(_request(self._spec))

    def _outcome(self) -> Evidence:
        if self._connection is None and self._warm is not None:
            self._await_warm(self._warm)
            self._connect()
        self._prepare_next()
        report = self._report()
        if self._warm is not None and not report.keys() & {"pid", "spawn_error"}:
            _LOG.warning("the warm interpreter of %s has died", self._spec.argv[:1])
            self._warm = None
            self._connect()
            report = self._report()
        if self._is_stopped and not report.keys() & {"pid", "spawn_error"}:
            return Evidence(ended_by=EndedBy.STOPPED, signal=int(signal.SIGTERM))
        if "status" not in report and "spawn_error" not in report:
            self._end_orphans()
        return _evidence(self._spec, report)

    def _await_warm(self, interpreter: warm.Interpreter) -> None:
        interpreter.when_settled(self._settled.set)
        if not self._settled.wait(warm.IMPORT_LIMIT_S):
            interpreter.kill()
        if not interpreter.suits(self._spec):
            self._warm = None

    def _prepare_next(self) -> None:
        """Do what a later launch needs, now that nobody waits for this one."""
        self._restock()
        start = self._spec.warm
        if start is not None and start.prepare and usable_cores() > 1:
            warm.prepare(self._spec)

    def _report(self) -> dict[str, Any]:
        report: dict[str, Any] = {}
        try:
            for line in self._lines():
                report |= json.loads(line)
                self.pid, self.keeper_pid = report.get("pid"), report.get("keeper")
        except (OSError, ValueError):
            _LOG.exception("the keeper's report cannot be read")
        return report

    def _lines(self) -> Iterator[bytes]:
        if self._connection is not None:
            with self._connection.makefile("rb") as lines:
                yield from lines


def _request(spec: LaunchSpec) -> dict[str, Any]:
    return {
        "argv": list(spec.argv),
        "cwd": str(spec.cwd),
        "env": dict(spec.env),
        "log": str(spec.log_path),
        "ranks": [{}],
    }


def _evidence(spec: LaunchSpec, report: dict[str, Any]) -> Evidence:
    if "spawn_error" in report:
        error = json.loads(report["spawn_error"])
        return Evidence(
            ended_by=EndedBy.SPAWN_ERROR,
            error_type=error["type"],
            message=explain_spawn_error(spec, error["errno"], error["text"]),
        )
    status = report.get("status")
    if status is None:
        why = f"its keeper ended {_how(report.get('keeper_status'))}, and the process with it"
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


def _how(status: int | None) -> str:
    return "in an unknown way" if status is None else f"with {os.waitstatus_to_exitcode(status)}"
