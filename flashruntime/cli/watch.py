"""Follows a job until it has ended: its events as lines, its progress, its result."""

import sys
import time
from threading import Event as Waiter
from typing import TYPE_CHECKING

from flashruntime.cli.common import plain
from flashruntime.cli.status import job_text, tasks_text
from flashruntime.errors import CoordinatorUnreachable
from flashruntime.protocol.events import Event, EventType
from flashruntime.protocol.jobs import JobRecord, JobState

if TYPE_CHECKING:
    from flashruntime.client import CoordinatorClient

POLL_S = 0.5
PATIENCE_S = 120.0
FAILED_LOG_LINES = 40
_QUIET = {EventType.TASK_CREATED, EventType.JOB_ACCEPTED}


def follow(client: "CoordinatorClient", job_id: str) -> int:
    """Print what happens to a job until it has ended; return 0 if it succeeded.

    A coordinator that cannot be reached is asked again for two minutes.
    """
    screen = _Screen()
    waiter, after, heard_s = Waiter(), 0, time.monotonic()
    while True:
        try:
            page = client.events(job_id, after=after)
            job = client.job(job_id)
            heard_s = time.monotonic()
        except CoordinatorUnreachable as error:
            if time.monotonic() - heard_s >= PATIENCE_S:
                raise
            screen.progress(f"no answer from the coordinator, asking again ({plain(str(error))})")
            waiter.wait(POLL_S)
            continue
        for event in page.items:
            screen.event(event)
        after = page.last_id if page.items else after
        if job.state.terminal and not page.items:
            screen.clear()
            return _result(client, job)
        if not job.state.terminal:
            screen.progress(job_text(job).splitlines()[0])
        if not page.items:
            waiter.wait(POLL_S)


def _result(client: "CoordinatorClient", job: JobRecord) -> int:
    print(job_text(job))
    print(tasks_text(client.tasks(job.job_id)))
    if job.state is not JobState.SUCCEEDED:
        print(client.logs(job.job_id, FAILED_LOG_LINES))
        return 1
    return 0


class _Screen:
    """Lines of events, and below them, on a terminal, one line that is rewritten."""

    def __init__(self) -> None:
        self._terminal = sys.stdout.isatty()
        self._last = ""

    def event(self, event: Event) -> None:
        """Print an event."""
        if event.type in _QUIET:
            return
        task = (event.task_id or "").rpartition("-")[2]
        data = " ".join(
            f"{name}={plain(str(value))}"
            for name, value in event.data.items()
            if not isinstance(value, dict | list | None)
        )
        self.clear()
        print(f"{event.at:%H:%M:%S} {task or '-'} {event.type} {data[:200]}".rstrip(), flush=True)

    def progress(self, line: str) -> None:
        """Show the state of the job, if it has changed."""
        if line == self._last:
            return
        self._last = line
        print(
            f"\r\033[K{line}" if self._terminal else line,
            end="" if self._terminal else "\n",
            flush=True,
        )

    def clear(self) -> None:
        """Make room for a line."""
        if self._terminal and self._last:
            print("\r\033[K", end="")
            self._last = ""
