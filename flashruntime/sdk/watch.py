"""Shows on stderr how a run goes: a line an event, and on a terminal a bar below them."""

import sys
from typing import TextIO

from flashruntime.protocol.events import Event, EventType
from flashruntime.protocol.jobs import JobState
from flashruntime.sdk.record import Listener, Record

BAR_CELLS = 24
MAX_TEXT = 160
_TOLD = {
    EventType.RECOVERY_ACTION_SELECTED,
    EventType.ATTEMPT_HUNG,
    EventType.TASK_EXHAUSTED,
    EventType.TASK_SET_ASIDE,
    EventType.JOB_SUCCEEDED,
    EventType.JOB_FAILED,
    EventType.JOB_CANCELLED,
}


def watcher(record: Record, watch: bool | None) -> Listener | None:
    """Return what shows the events of a run, None if nothing is to be shown."""
    stream = sys.stderr
    terminal = stream is not None and stream.isatty()
    if watch is False or stream is None or (watch is None and not terminal):
        return None
    return _Screen(record, stream, terminal)


class _Screen:
    def __init__(self, record: Record, stream: TextIO, terminal: bool) -> None:
        self._record = record
        self._stream = stream
        self._terminal = terminal
        self._done = self._failed = self._restarts = 0

    def __call__(self, event: Event) -> None:
        self._count(event)
        clear = "\r\033[K" if self._terminal else ""
        text = f"{clear}{_line(event)}\n" if event.type in _TOLD else ""
        if self._terminal and not self._record.state.terminal:
            text += f"\r\033[K{self._bar()}"
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):
            self._terminal = False

    def _count(self, event: Event) -> None:
        if event.type is EventType.TASK_COMMIT_ACCEPTED:
            self._done += 1
        elif event.type is EventType.RECOVERY_ACTION_SELECTED:
            ended = event.data.get("action") in {"fail_job", "pause_job"}
            self._failed += ended
            self._restarts += not ended

    def _bar(self) -> str:
        total = len(self._record.tasks)
        full = BAR_CELLS * (self._done + self._failed) // total
        running = sum(task.state is JobState.RUNNING for task in self._record.tasks)
        return (
            f"[{'#' * full}{'.' * (BAR_CELLS - full)}] {self._done}/{total} done, "
            f"{running} running, {self._failed} failed, {self._restarts} restarts"
        )


def _line(event: Event) -> str:
    task = (event.task_id or "").rpartition("-")[2].lstrip("0")
    about = " ".join(
        str(event.data[name]) for name in ("action", "reason", "directory") if event.data.get(name)
    )
    shown = "".join(character if character.isprintable() else " " for character in about)
    where = f" task {task or 0}" if event.task_id else ""
    return f"{event.at:%H:%M:%S}{where} {event.type} {shown[:MAX_TEXT]}".rstrip()
