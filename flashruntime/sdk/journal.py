"""A run on disk: an append-only journal of events, and run.json, which mirrors the whole of it.

An event costs one line, however many there were. run.json is written anew at a pace that keeps
its share of the time small, and always at the start and the end.
"""

import logging
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Literal

from pydantic import JsonValue, ValidationError

from flashruntime.clock import Clock, boot_id
from flashruntime.launch.files import open_regular
from flashruntime.protocol.base import OpenModel
from flashruntime.protocol.events import Event, EventType
from flashruntime.protocol.failures import FailureClass, RecoveryAction
from flashruntime.protocol.jobs import JobState, Params
from flashruntime.protocol.plain import plain

_LOG = logging.getLogger(__name__)
JOURNAL_NAME = "journal.jsonl"
RUN_NAME = "run.json"
SHOWN_EVENTS = 200
MIRROR_SHARE = 0.05
MIRROR_LEAST_S = 0.1
TAIL_BYTES = 1024 * 1024
MAX_RUN_BYTES = 256 * 1024 * 1024


class AttemptRecord(OpenModel):
    """One attempt; `directory` and `log` are relative to the output directory."""

    attempt_id: str
    task: int
    number: int
    state: JobState
    directory: str
    log: str
    started_at: datetime
    duration_s: float | None = None
    exit_code: int | None = None
    signal: int | None = None
    step: int | None = None
    resumed_from: int | None = None
    failure_class: FailureClass | None = None
    action: RecoveryAction | None = None
    reason: str | None = None


class Artifact(OpenModel):
    """A file that an attempt left; `accepted` where that attempt succeeded."""

    task: int
    attempt_id: str
    path: str
    file: str
    size_bytes: int
    accepted: bool


class Earlier(OpenModel):
    """A run that used the same output directory before."""

    job_id: str
    state: JobState
    reason: str | None = None
    started_at: datetime
    ended_at: datetime | None = None
    attempts: int = 0


class RunDocument(OpenModel):
    """The content of run.json; `events` are the newest, all of them are in `journal`."""

    contract: Literal["viewer_v1"] = "viewer_v1"
    job_id: str
    state: JobState
    reason: str | None
    command: list[str]
    mode: str
    parallel: int
    max_restarts: int
    primary_metric: str | None
    maximize: bool
    pid: int
    boot_id: str
    started_at: datetime
    ended_at: datetime | None
    tasks: dict[str, int]
    params: list[Params]
    trials: list[dict[str, JsonValue]]
    attempts: list[AttemptRecord]
    artifacts: list[Artifact]
    events: list[Event]
    events_total: int
    journal: str = JOURNAL_NAME
    history: list[Earlier]


class Journal:
    """Appends the events of one run; ids go on from what is there."""

    def __init__(self, output_dir: Path, job_id: str, clock: Clock) -> None:
        path = output_dir / JOURNAL_NAME
        last, self._torn = _last_event(path)
        self.events: list[Event] = []
        self._job_id = job_id
        self._clock = clock
        self._next_id = 1 if last is None else last.id + 1
        self._file = path.open("ab", buffering=0)

    def append(
        self,
        kind: EventType,
        task_id: str | None = None,
        attempt_id: str | None = None,
        data: Mapping[str, object] | None = None,
    ) -> Event:
        """Write one event; what the disk does not take stays in memory, and is logged."""
        event = Event(
            id=self._next_id,
            job_id=self._job_id,
            task_id=task_id,
            lease_id=attempt_id,
            type=kind,
            at=self._clock.utc_now(),
            mono_ns=self._clock.monotonic_ns(),
            boot_id=boot_id(),
            data={name: plain(value, name) for name, value in (data or {}).items()},
        )
        self._write(event.model_dump_json().encode() + b"\n")
        self._next_id += 1
        self.events.append(event)
        return event

    def _write(self, line: bytes) -> None:
        whole = b"\n" + line if self._torn else line
        try:
            self._torn = self._file.write(whole) != len(whole)
        except OSError as error:
            self._torn = True
            _LOG.warning("an event could not be written to %s: %s", self._file.name, error)

    def close(self) -> None:
        """Make all of it durable."""
        with suppress(OSError):
            os.fsync(self._file.fileno())
        self._file.close()


class Mirror:
    """Writes run.json when it is due: rarely enough that its cost stays a small share."""

    def __init__(self, path: Path, render: Callable[[], RunDocument], clock: Clock) -> None:
        self._path = path
        self._render = render
        self._clock = clock
        self._due_ns = 0
        self._dirty = False
        self._has_failed = False

    def touch(self) -> None:
        """Note that something has changed."""
        self._dirty = True

    def due_in_s(self) -> float | None:
        """Return the seconds until `write_if_due` would write, None while nothing has changed."""
        if not self._dirty:
            return None
        return max(0.0, (self._due_ns - self._clock.monotonic_ns()) / 1e9)

    def write_if_due(self) -> None:
        """Write if something has changed and the last time is long enough ago."""
        if self._dirty and self._clock.monotonic_ns() >= self._due_ns:
            self.write()

    def write(self, *, durable: bool = False) -> None:
        """Replace run.json in one step; what the disk does not take is tried again later."""
        begun_ns = self._clock.monotonic_ns()
        self._dirty = False
        try:
            self._replace(durable)
            self._has_failed = False
        except OSError as error:
            if not self._has_failed:
                _LOG.warning("%s cannot be written for now: %s", self._path, error)
            self._dirty = self._has_failed = True
        ended_ns = self._clock.monotonic_ns()
        pause_ns = max(MIRROR_LEAST_S * 1e9, (ended_ns - begun_ns) / MIRROR_SHARE)
        self._due_ns = ended_ns + int(pause_ns)

    def _replace(self, durable: bool) -> None:
        scratch = self._path.with_name(f".{self._path.name}.tmp")
        with scratch.open("wb") as file:
            file.write(self._render().model_dump_json(indent=1).encode())
            if durable:
                file.flush()
                os.fsync(file.fileno())
        scratch.replace(self._path)


def read_run(output_dir: Path) -> RunDocument | None:
    """Return what run.json says, None if there is none or it is not ours."""
    try:
        with open_regular(output_dir / RUN_NAME) as file:
            return RunDocument.model_validate_json(file.read(MAX_RUN_BYTES))
    except (OSError, ValidationError):
        return None


def _last_event(path: Path) -> tuple[Event | None, bool]:
    """Return the newest whole event of a journal, and whether its last line is torn."""
    try:
        with open_regular(path) as file:
            length = file.seek(0, os.SEEK_END)
            file.seek(max(0, length - TAIL_BYTES))
            content = file.read()
    except OSError:
        return None, False
    for line in reversed(content.split(b"\n")):
        try:
            return Event.model_validate_json(line), not content.endswith(b"\n")
        except ValidationError:
            continue
    return None, bool(content) and not content.endswith(b"\n")
