"""A launcher whose processes die of SIGKILL at chosen moments, each with everything below it."""

import os
import select
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from threading import Event as Flag
from threading import Thread

from flashruntime.launch import processes
from flashruntime.launch.local import LocalLauncher, LocalProcess
from flashruntime.launch.progress import Progress, read_progress
from flashruntime.launch.spec import LaunchSpec
from flashruntime.protocol.failures import EndedBy, Evidence

POLL_S = 0.002
STARTUP_SHARE = 0.125


@dataclass(frozen=True, slots=True)
class Moment:
    """`delay_s` after the process has shown `step`, or, where that is None, after its start."""

    step: int | None
    delay_s: float


@dataclass(frozen=True, slots=True)
class Pace:
    """How an undisturbed process went: its steps, if it tells them, the time for one, its start."""

    duration_s: float
    steps: int | None = None
    step_s: float = 0.0
    startup_s: float = 0.0


def choose_moments(kills: int, pace: Pace, chance: Random) -> list[Moment]:
    """Return moments spread over a run: by step where it tells its steps, else by time.

    Of those by step a share falls into the start of a process, while it resumes.
    """
    if pace.steps is None or pace.steps < 2:
        return [Moment(None, chance.random() * pace.duration_s) for _ in range(kills)]
    at = sorted(chance.randrange(1, pace.steps) for _ in range(kills))
    return [
        Moment(None, chance.random() * pace.startup_s)
        if chance.random() < STARTUP_SHARE
        else Moment(step, chance.random() * pace.step_s)
        for step in at
    ]


class Watched:
    """A process that is killed when its moment comes; without one it is only watched."""

    def __init__(self, attempt_id: str, step_file: Path, moment: Moment | None) -> None:
        self.attempt_id = attempt_id
        self.moment = moment
        self._ended = Flag()
        self.progress = Progress()
        self._step_file = step_file
        self._process: LocalProcess | None = None
        self._began_s = self._ended_s = time.monotonic()
        self._first: tuple[int, float] | None = None
        self._reached_s: float | None = None
        self._fired = False
        self._pid_handle: int | None = None

    @property
    def landed(self) -> bool:
        """Whether the process has ended, and of our SIGKILL."""
        evidence = self._inner.wait(0)
        return self._fired and evidence is not None and evidence.signal == signal.SIGKILL

    @property
    def pace(self) -> Pace:
        """How fast it went, once it has ended."""
        last = read_progress(self._step_file).step
        if self._first is None or last is None:
            return Pace(self._ended_s - self._began_s, last)
        step, at_s = self._first
        step_s = (self._ended_s - at_s) / max(1, last - step)
        return Pace(self._ended_s - self._began_s, last, step_s, at_s - self._began_s)

    def attach(self, process: LocalProcess, on_kill: Callable[["Watched"], None]) -> None:
        """Begin to watch `process`; `on_kill` is called right after the kill."""
        self._process = process
        Thread(target=self._watch, args=(on_kill,), name="kill", daemon=True).start()

    def end(self) -> None:
        """Note that it has ended."""
        self._ended_s = time.monotonic()
        self._ended.set()

    def stop(self, grace_s: float) -> None:
        """Ask it to end."""
        self._inner.stop(grace_s)

    def dump_stacks(self) -> int:
        """Ask it to print its stacks."""
        return self._inner.dump_stacks()

    @property
    def is_dumping(self) -> bool:
        """Whether stacks that were asked for are not all printed yet."""
        return self._inner.is_dumping

    def wait(self, timeout_s: float | None = None) -> Evidence | None:
        """Return how it ended: a kill of ours is an attempt that its launcher has stopped."""
        evidence = self._inner.wait(timeout_s)
        if evidence is None or not self.landed:
            return evidence
        number = int(signal.SIGKILL)
        return Evidence(ended_by=EndedBy.STOPPED, signal=number, message="SIGKILL by verify-resume")

    @property
    def _inner(self) -> LocalProcess:
        assert self._process is not None  # noqa: S101 (attached before anybody else has it)
        return self._process

    def _watch(self, on_kill: Callable[["Watched"], None]) -> None:
        try:
            while not self._ended.wait(POLL_S):
                self._look()
                if self._due() and self._pid_handle is not None:
                    self._kill()
                    on_kill(self)
                    return
        finally:
            if self._pid_handle is not None:
                os.close(self._pid_handle)

    def _look(self) -> None:
        pid = self._inner.pid
        if self._pid_handle is None and pid is not None:
            with suppress(ProcessLookupError):
                self._pid_handle = os.pidfd_open(pid)
        progress = read_progress(self._step_file)
        if progress.step is not None:
            self.progress = progress
            if self._first is None:
                self._first = progress.step, time.monotonic()

    def _due(self) -> bool:
        moment, now_s = self.moment, time.monotonic()
        if moment is None:
            return False
        if moment.step is None:
            return now_s - self._began_s >= moment.delay_s
        if self._reached_s is None and (self.progress.step or 0) >= moment.step:
            self._reached_s = now_s
        return self._reached_s is not None and now_s - self._reached_s >= moment.delay_s

    def _kill(self) -> None:
        """Kill the process, its group and all below it, unless it has ended already.

        It is stopped first and dies last: at its death its keeper ends in kind what is below it.
        """
        pid, handle = self._inner.pid, self._pid_handle
        assert pid is not None and handle is not None  # noqa: S101, PT018 (known since _look)
        below = processes.descendants(pid)
        if select.select([handle], [], [], 0)[0]:
            return
        self._fired = True
        processes.signal_each([-pid], signal.SIGSTOP)
        processes.signal_each([*below, -pid], signal.SIGKILL)


class KillingLauncher:
    """Starts processes of this machine; each takes the next of `moments` as its own."""

    def __init__(self, moments: Iterable[Moment], on_kill: Callable[[Watched], None]) -> None:
        self._inner = LocalLauncher()
        self._moments = iter(moments)
        self._on_kill = on_kill
        self.launched: list[Watched] = []

    def launch(self, spec: LaunchSpec, on_end: Callable[[], None]) -> Watched:
        """Start `spec`, to be killed when its moment comes."""
        attempt_id, step_file = spec.env["FLASHML_ATTEMPT_ID"], spec.env["FLASHML_STEP_FILE"]
        watched = Watched(attempt_id, Path(step_file), next(self._moments, None))

        def ended() -> None:
            watched.end()
            on_end()

        watched.attach(self._inner.launch(spec, ended), self._on_kill)
        self.launched.append(watched)
        return watched
