"""The history of a run: append-only JSON lines, written first and judged afterwards.

Times are CLOCK_MONOTONIC nanoseconds, comparable between records of equal boot id.
"""

import hashlib
import json
import os
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TextIO

from chaos.model import ChaosError, JsonMap, JsonValue

SCHEMA = 2
"""2: what was said in logs, events asked for again, and the processes at the end are there."""
JOB_ENDS = {"JOB_SUCCEEDED", "JOB_FAILED", "JOB_CANCELLED"}


class HistoryError(ChaosError):
    """The history cannot be read, or lacks what a judge needs."""


def boot_id() -> str:
    """Return the kernel's boot id, or "unknown" where the kernel has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return "unknown"


class HistoryWriter:
    """Appends records from any thread; a record is handed to the kernel before `append` returns."""

    def __init__(self, path: Path) -> None:
        self._file: TextIO = path.open("x", encoding="utf-8")
        self._lock = threading.Lock()
        self._seq = 0
        self._boot_id = boot_id()

    def append(self, kind: str, data: JsonMap, source: str = "controller") -> None:
        """Append one record; NaN and Infinity raise ValueError."""
        with self._lock:
            record: dict[str, JsonValue] = {
                "seq": self._seq,
                "t_ns": time.monotonic_ns(),
                "boot_id": self._boot_id,
                "wall": datetime.now(UTC).isoformat(),
                "source": source,
                "kind": kind,
                "data": dict(data),
            }
            self._file.write(json.dumps(record, allow_nan=False, sort_keys=True) + "\n")
            self._file.flush()
            self._seq += 1

    def close(self) -> None:
        """Make the history durable and close it."""
        with self._lock:
            if not self._file.closed:
                self._file.flush()
                os.fsync(self._file.fileno())
                self._file.close()

    def __enter__(self) -> "HistoryWriter":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class Record:
    """One line of a history."""

    seq: int
    t_ns: int
    boot_id: str
    wall: str
    source: str
    kind: str
    data: JsonMap


@dataclass(frozen=True, slots=True)
class Event:
    """One event of the coordinator, as its API told it."""

    id: int
    type: str
    mono_ns: int
    boot_id: str
    job_id: str | None
    task_id: str | None
    lease_id: str | None
    data: JsonMap


class History:
    """The records of one run, in order."""

    def __init__(self, records: Iterable[Record]) -> None:
        self.records = tuple(records)

    @classmethod
    def load(cls, path: Path) -> "History":
        """Read a history; a torn last line (a killed harness) is left out.

        Raise HistoryError where anything else is not a record, or one is missing.
        """
        try:
            lines = path.read_text(encoding="utf-8").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise HistoryError(f"cannot read the history {path}: {error}") from error
        records = [_parse(line, path, number) for number, line in enumerate(lines[:-1], start=1)]
        if gaps := [number for number, record in enumerate(records) if record.seq != number]:
            raise HistoryError(f"{path}: record {gaps[0]} is missing or stands elsewhere")
        return cls(records)

    def of(self, *kinds: str) -> tuple[JsonMap, ...]:
        """Return the data of all records of these kinds."""
        return tuple(record.data for record in self.records if record.kind in kinds)

    def one(self, kind: str) -> JsonMap:
        """Return the data of the last record of a kind; raise HistoryError where none is."""
        found = self.of(kind)
        if not found:
            raise HistoryError(f"the history has no {kind!r} record")
        return found[-1]

    @cached_property
    def schema(self) -> int:
        """Which records a run of this history writes, 1 where it does not say."""
        runs = self.of("run")
        return integer(runs[-1].get("schema")) or 1 if runs else 1

    def role_of(self) -> dict[str, str]:
        """Return job id -> role of the submitted jobs."""
        return {str(job["job_id"]): str(job["role"]) for job in self.of("job_submitted")}

    def job_id(self, role: str) -> str:
        """Return the id of the job with this role; raise HistoryError where there is none."""
        for job, name in self.role_of().items():
            if name == role:
                return job
        raise HistoryError(f"no job of role {role!r} was submitted")

    @cached_property
    def lanes(self) -> dict[str, str]:
        """Task id -> "ROLE", or "ROLE/INDEX" of a job with several tasks, as observed."""
        views = [(mapping(job.get("task")).get("task_id"), job) for job in self.of("task")]
        found = {str(task_id): str(job["role"]) for task_id, job in views if task_id}
        roles = self.role_of()
        for event in self.events():
            if event.task_id is not None and event.job_id in roles:
                found.setdefault(event.task_id, roles[event.job_id])
        return found

    def likes(self) -> dict[str, str]:
        """Return role -> the role of the job that nobody disturbed and that must end like it."""
        jobs = {str(job["role"]): text(job.get("like")) for job in self.of("job_submitted")}
        if not any(jobs.values()) and {"main", "reference"} <= set(jobs):
            return {"main": "reference"}
        return {role: like for role, like in jobs.items() if like is not None}

    def task_ends(self, role: str) -> list[dict[str, JsonValue]]:
        """Return the final records of the tasks of a job, each with its metrics."""
        final = self.final(role)
        tasks = items(final.get("tasks"))
        if len(tasks) == 1:
            return [{**tasks[0], "metrics": final.get("metrics") or tasks[0].get("metrics")}]
        return tasks

    def final(self, role: str) -> JsonMap:
        """Return the last `job_final` record of a role; raise HistoryError where none is."""
        found = [data for data in self.of("job_final") if data.get("role") == role]
        if not found:
            raise HistoryError(f"the end of job {role!r} was not recorded")
        return found[-1]

    def events(self, job_id: str | None = None) -> tuple[Event, ...]:
        """Return the coordinator's events, each id once, in the order of ids."""
        if job_id is None:
            return self._events
        return tuple(event for event in self._events if event.job_id == job_id)

    @cached_property
    def _events(self) -> tuple[Event, ...]:
        found = {event.id: event for event in map(_event, self.of("event"))}
        return tuple(sorted(found.values(), key=lambda event: event.id))

    def heard_out(self, job_id: str) -> bool:
        """Whether the event that ends a job was heard, and so all before it: they come in order."""
        return any(event.type in JOB_ENDS for event in self.events(job_id))


def _parse(line: str, path: Path, number: int) -> Record:
    try:
        return Record(**json.loads(line))
    except (ValueError, TypeError) as error:
        raise HistoryError(f"{path}, line {number} is not a record: {error}") from error


def _event(data: JsonMap) -> Event:
    try:
        return Event(
            id=int(str(data["id"])),
            type=str(data["type"]),
            mono_ns=int(str(data["mono_ns"])),
            boot_id=str(data["boot_id"]),
            job_id=text(data.get("job_id")),
            task_id=text(data.get("task_id")),
            lease_id=text(data.get("lease_id")),
            data=mapping(data.get("data")),
        )
    except (KeyError, ValueError) as error:
        raise HistoryError(f"an event of the history is not complete: {error}") from error


def digest(data: JsonMap) -> str:
    """Return a digest of JSON data, whatever the order of its keys."""
    canonical = json.dumps(dict(data), allow_nan=False, sort_keys=True)
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def text(value: JsonValue) -> str | None:
    """Return a JSON string as it is, anything else as None."""
    return value if isinstance(value, str) else None


def integer(value: JsonValue) -> int | None:
    """Return a JSON integer as it is, anything else as None."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def mapping(value: JsonValue) -> dict[str, JsonValue]:
    """Return a JSON object as it is, anything else as an empty one."""
    return value if isinstance(value, dict) else {}


def items(value: JsonValue) -> list[dict[str, JsonValue]]:
    """Return the objects of a JSON list; anything else is left out."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
