"""Submit a workload as a run of this machine."""

import atexit
import math
import os
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event as Flag
from threading import Thread
from uuid import uuid4

from flashruntime.clock import SystemClock
from flashruntime.errors import InvalidInput
from flashruntime.launch.cores import usable_cores
from flashruntime.launch.local import LocalLauncher
from flashruntime.launch.spec import Launcher
from flashruntime.protocol.jobs import JobState
from flashruntime.sdk.home import RunHome
from flashruntime.sdk.journal import Earlier, read_run
from flashruntime.sdk.plan import Limits, Plan
from flashruntime.sdk.record import Record
from flashruntime.sdk.run import Run
from flashruntime.sdk.supervisor import Supervisor
from flashruntime.sdk.timers import MOST_S
from flashruntime.sdk.watch import watcher
from flashruntime.sdk.workload import CommandWorkload

MAX_RESTARTS = 1_000
MAX_PARALLEL = 4_096
EXIT_WAIT_S = 15.0
_LIVE: "set[_Drive]" = set()


def submit(  # noqa: PLR0917 (a public signature)
    workload: CommandWorkload,
    output_dir: str | Path | None = None,
    wait: bool = True,
    max_restarts: int = 0,
    watch: bool | None = None,
    parallel: int | None = None,
    timeout_s: float | None = None,
) -> Run:
    """Run a workload here; with wait=False it goes on in the background, until this process ends.

    `parallel` tasks run at once (default: one a core). A second run in one `output_dir` is refused
    with Conflict while the first goes on; later it continues from the checkpoints there.
    `timeout_s` bounds the whole run. `watch` prints progress (default: on a terminal).
    """
    run = _start(_plan(workload, output_dir, max_restarts, parallel, timeout_s), watch)
    if wait:
        try:
            run.wait()
        except BaseException:
            run.cancel()
            raise
    return run


def submit_through(
    launcher: Launcher,
    workload: CommandWorkload,
    output_dir: Path,
    *,
    max_restarts: int = 0,
    timeout_s: float | None = None,
) -> Run:
    """Run a workload in the background, its processes started by `launcher`."""
    return _start(_plan(workload, output_dir, max_restarts, None, timeout_s), False, launcher)


def _plan(
    workload: CommandWorkload,
    output_dir: str | Path | None,
    max_restarts: int,
    parallel: int | None,
    timeout_s: float | None,
) -> Plan:
    if not isinstance(workload, CommandWorkload):
        raise InvalidInput(f"workload must be a CommandWorkload, not {type(workload).__name__}")
    _check_whole("max_restarts", max_restarts, 0, MAX_RESTARTS)
    if parallel is not None:
        _check_whole("parallel", parallel, 1, MAX_PARALLEL)
    if timeout_s is not None:
        is_number = isinstance(timeout_s, int | float) and not isinstance(timeout_s, bool)
        if not is_number or not 0 < timeout_s < math.inf:
            raise InvalidInput(f"timeout_s={timeout_s!r} must be a number of seconds above 0")
        timeout_s = float(min(timeout_s, MOST_S))
    place = _place(output_dir)
    cores = usable_cores()
    return Plan(
        job_id=f"job-{uuid4().hex[:12]}",
        output_dir=place,
        workload=workload,
        limits=Limits(max_restarts=max_restarts, timeout_s=timeout_s),
        parallel=min(parallel or cores, len(workload.tasks)),
        cores=cores,
    )


def _place(output_dir: object) -> Path:
    if output_dir is None:
        return Path(tempfile.mkdtemp(prefix="flashruntime-"))
    if not isinstance(output_dir, str | Path) or str(output_dir) == "" or "\0" in str(output_dir):
        raise InvalidInput(f"output_dir={output_dir!r} must be the path of a directory, or None")
    return Path(output_dir).absolute()


def _check_whole(name: str, value: object, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidInput(f"{name}={value!r} must be a whole number from {least} to {most}")


def _start(plan: Plan, watch: bool | None, launcher: Launcher | None = None) -> Run:
    home = RunHome(plan.output_dir)
    home.open()
    try:
        plan.clear()
        record = Record(plan, SystemClock(), _history(plan.output_dir))
        supervisor = Supervisor(record, launcher or LocalLauncher())
        ended = Flag()
        run = Run(record, supervisor.cancel, ended)
        listener = watcher(record, watch)
        if listener is not None:
            record.listeners.append(listener)
        home.listen(supervisor.cancel)
        drive = _Drive(supervisor, home, ended)
        driver = Thread(target=drive, name=f"drive-{plan.job_id}", daemon=True)
        _LIVE.add(drive)
        driver.start()
    except BaseException:
        home.close()
        raise
    return run


@dataclass(frozen=True, slots=True, eq=False)
class _Drive:
    """Drives a run in a thread; whatever happens, the run has ended afterwards."""

    supervisor: Supervisor
    home: RunHome
    ended: Flag

    def __call__(self) -> None:
        try:
            self.supervisor.drive()
            with suppress(OSError):
                self.home.close()
        finally:
            self.ended.set()
            _LIVE.discard(self)


def _history(output_dir: Path) -> list[Earlier]:
    """Return the runs that used the directory before; one without an end was interrupted."""
    last = read_run(output_dir)
    if last is None:
        return []
    state, reason = last.state, last.reason
    if not state.terminal:
        state, reason = JobState.FAILED, "its submitter ended before it"
    earlier = Earlier(
        job_id=last.job_id,
        state=state,
        reason=reason,
        started_at=last.started_at,
        ended_at=last.ended_at,
        attempts=len(last.attempts),
    )
    return [*last.history, earlier]


# What a fork has of the runs of its parent is not its own to end.
os.register_at_fork(after_in_child=_LIVE.clear)


@atexit.register
def _end_live_runs() -> None:
    """End the runs that nobody waited for, so that they leave a record and no process."""
    live = list(_LIVE)
    for drive in live:
        drive.supervisor.cancel("the submitting process ended")
    for drive in live:
        drive.ended.wait(EXIT_WAIT_S)
