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
from flashruntime.protocol.tasks import TaskState

if TYPE_CHECKING:
    from flashruntime.client import CoordinatorClient

POLL_S = 0.5
UNATTENDED_S = 3.0
PATIENCE_S = 120.0
FAILED_LOG_LINES = 40
_QUIET = {EventType.TASK_CREATED, EventType.JOB_ACCEPTED}


def follow(client: "CoordinatorClient", job_id: str) -> int:
    """Print what happens to a job until it has ended; return 0 if it succeeded.

    A coordinator that cannot be reached is asked again for two minutes. Ctrl-C ends the watching.
    """
    screen = _Screen()
    try:
        return _follow(client, job_id, screen)
    except KeyboardInterrupt:
        screen.clear()
        named = f"{job_id} --coordinator {client.base_url}"
        text = f"the job goes on: flashruntime status {named} | flashruntime cancel {named}"
        print(f"flashruntime submit: {text}", file=sys.stderr)
        return 1


def _follow(client: "CoordinatorClient", job_id: str, screen: "_Screen") -> int:
    attendance = _Attendance(client)
    waiter, after, heard_s = Waiter(), 0, time.monotonic()
    while True:
        try:
            page = client.events(job_id, after=after)
            job = client.job(job_id)
            note = attendance.note(job)
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
        if note is not None:
            screen.note(note)
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


class _Attendance:
    """Notices, once, that tasks wait while there is no worker to take them, or none that fits."""

    def __init__(self, client: "CoordinatorClient") -> None:
        self._client = client
        self._since_s: float | None = None
        self._told = False

    def note(self, job: JobRecord) -> str | None:
        """Return what to tell about the workers, None if there is nothing to tell."""
        waiting = job.tasks.get(TaskState.PENDING, 0) and not job.tasks.get(TaskState.LEASED, 0)
        if self._told or not waiting:
            self._since_s = None
            return None
        now_s = time.monotonic()
        if self._since_s is None:
            self._since_s = now_s
        if now_s - self._since_s < UNATTENDED_S:
            return None
        self._since_s = now_s
        if any(node.status == "live" for node in self._client.nodes()):
            self._told = job.waiting_for is not None
            return job.waiting_for
        self._told = True
        url = self._client.base_url
        return (
            f"no worker is registered with {url}; start one: make up, or flashruntime work "
            f"--coordinator {url}"
        )


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

    def note(self, text: str) -> None:
        """Print what the user should know, beside the output."""
        self.clear()
        sys.stdout.flush()
        print(f"flashruntime submit: note: {text}", file=sys.stderr, flush=True)

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
