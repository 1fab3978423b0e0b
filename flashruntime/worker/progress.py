"""An attempt that shows no progress is ended, with its stacks in its output."""

from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import Self

from flashruntime.launch.progress import read_progress
from flashruntime.launch.spec import Process
from flashruntime.protocol.failures import EndedBy, Evidence
from flashruntime.worker import events

LOOKS_PER_LIMIT = 4
DUMP_LOOK_S, DUMP_LIMIT_S = 0.05, 10.0
GRACE_S = 10.0
Signs = tuple[int, int | None, int | None]


class ProgressWatch:
    """Ends `process` once it has neither printed nor stepped for `limit_s`; None: it may wait."""

    def __init__(
        self, process: Process, log: Path, step_file: Path, limit_s: float | None, lease_id: str
    ) -> None:
        self._process = process
        self._log = log
        self._step_file = step_file
        self._limit_s = limit_s
        self._lease_id = lease_id
        self._closed = Event()
        self._hung: str | None = None

    def __enter__(self) -> Self:
        if self._limit_s is not None:
            watch = Thread(target=self._run, args=(self._limit_s,), name="progress", daemon=True)
            watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()

    def explained(self, evidence: Evidence) -> Evidence:
        """Return the evidence of an end that this watch may have brought about."""
        if self._hung is None:
            return evidence
        return evidence.model_copy(update={"ended_by": EndedBy.HUNG, "message": self._hung})

    def _run(self, limit_s: float) -> None:
        signs, since_s = self._signs(), monotonic()
        while not self._closed.wait(limit_s / LOOKS_PER_LIMIT):
            seen, now_s = self._signs(), monotonic()
            if seen != signs:
                signs, since_s = seen, now_s
            elif now_s - since_s >= limit_s:
                self._end(f"no output and no new step for {limit_s:g} s")
                return

    def _end(self, hung: str) -> None:
        stacks = self._process.dump_stacks()
        events.warning("attempt_hung", lease_id=self._lease_id, reason=hung, stacks=stacks)
        until_s = monotonic() + DUMP_LIMIT_S
        while self._process.is_dumping and monotonic() < until_s:
            if self._closed.wait(DUMP_LOOK_S):
                return
        self._hung = hung
        self._process.stop(GRACE_S)

    def _signs(self) -> Signs:
        done = read_progress(self._step_file)
        return _size_bytes(self._log), done.step, done.checkpoint_step


def _size_bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
