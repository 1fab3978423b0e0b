"""What a coordinator counts and times; docs/metrics.md says what each name means.

What happens to leases is counted from the ledger's events after they are durable, so that no call
waits for its own statistics.
"""

import asyncio
import json
import os
import platform
import sqlite3
import time
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import TypeVar

from flashruntime import __version__
from flashruntime.leases.sqlite_reader import Depth, LedgerEvent
from flashruntime.protocol.events import EventType
from flashruntime.service.metrics import Labels, Registry

T = TypeVar("T")
NS_PER_S = 1_000_000_000
SESSION_ENDED = "session_ended"
LAG_PERIOD_S = 0.5
MAX_TRACKED = 100_000
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"})
REQUEST_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
COMMIT_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1)
DETECTION_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
RECOVERY_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
LAG_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5)
_HEARTBEATS = {
    "/v1alpha1/attempts/{lease_id}/heartbeat": "attempt",
    "/v1alpha1/nodes/{node_id}/heartbeat": "node",
}
_STATUS = {number: str(number) for number in range(100, 600)}
_CLAIM = "/v1alpha1/leases/claim"
_ENDED = {
    EventType.JOB_SUCCEEDED: "SUCCEEDED",
    EventType.JOB_FAILED: "FAILED",
    EventType.JOB_CANCELLED: "CANCELLED",
}


class Observed:
    """The metrics of one application, and what feeds them."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.started_s = time.time()
        self.depth = Depth(0, 0, 0)
        self.streams = 0
        self.in_progress = 0
        self.ledger: Path | None = None
        self.ended_ns: dict[str, int] = {}
        self._requests()
        self._leases()
        self._storage()
        self._process()
        self._recovery = RecoveryTimes(self)

    def _requests(self) -> None:
        made = self.registry
        self.requests = made.counter(
            "flashruntime_http_requests_total",
            "Answered requests by method, route template and status.",
            ("method", "route", "status"),
        )
        self.request_s = made.histogram(
            "flashruntime_http_request_duration_seconds",
            "Time from the head of a request to the end of its answer; a claim's waiting counts, "
            "streams are left out.",
            REQUEST_S,
            ("method", "route"),
        )
        made.gauge(
            "flashruntime_http_requests_in_progress",
            "Requests under way, streams and waiting claims among them.",
            lambda: {(): self.in_progress},
        )
        made.gauge(
            "flashruntime_event_streams",
            "Open streams of server-sent events.",
            lambda: {(): self.streams},
        )
        self.heartbeats = made.counter(
            "flashruntime_heartbeats_total",
            "Signs of life of attempts and nodes, renewed or refused.",
            ("kind", "result"),
        )

    def _leases(self) -> None:
        made = self.registry
        self.claims = made.counter(
            "flashruntime_claims_total",
            "Claims that brought a lease, found no task, or were refused.",
            ("result",),
        )
        self.commits = made.counter(
            "flashruntime_commits_total",
            "Results of attempts that became their task's result, or came too late.",
            ("result",),
        )
        self.expired = made.counter(
            "flashruntime_leases_expired_total",
            "Leases whose task became claimable because nothing was heard of their holder.",
            ("reason",),
        )
        self.failures = made.counter(
            "flashruntime_failures_total", "Failures by their class.", ("failure_class",)
        )
        self.actions = made.counter(
            "flashruntime_recovery_actions_total", "What was done about failures.", ("action",)
        )
        self.jobs = made.counter("flashruntime_jobs_finished_total", "Jobs that ended.", ("state",))
        self.events = made.counter(
            "flashruntime_events_total", "Events of the ledger by type.", ("type",)
        )
        self._recovered()

    def _recovered(self) -> None:
        made = self.registry
        made.gauge(
            "flashruntime_tasks",
            "Tasks of open jobs that wait to be claimed or are held under a lease.",
            lambda: {("PENDING",): self.depth.pending, ("LEASED",): self.depth.leased},
            ("state",),
        )
        made.gauge(
            "flashruntime_leases_live",
            "Leases whose holder is believed to be alive.",
            lambda: {(): self.depth.leased},
        )
        made.gauge(
            "flashruntime_jobs_open", "Jobs that have not ended.", lambda: {(): self.depth.jobs}
        )
        self.detection_s = made.histogram(
            "flashruntime_detection_seconds",
            "MTTD: from a holder's last sign of life, or the end of its session, until its task "
            "can be claimed.",
            DETECTION_S,
            ("reason",),
        )
        self.recovery_s = made.histogram(
            "flashruntime_recovery_seconds",
            "MTTR: from a task that can be claimed again until it is claimed, or until its new "
            "attempt is beyond the step that the lost one had reached.",
            RECOVERY_S,
            ("until",),
        )

    def _storage(self) -> None:
        made = self.registry
        self.commit_s = made.histogram(
            "flashruntime_ledger_commit_seconds",
            "Time of one commit of the ledger, its fsync included.",
            COMMIT_S,
        )
        made.gauge("flashruntime_ledger_bytes", "Size of the ledger's files.", self._ledger_bytes)
        self.received = made.counter(
            "flashruntime_artifact_received_bytes_total", "Bytes of artifacts from clients."
        )
        self.sent = made.counter(
            "flashruntime_artifact_sent_bytes_total", "Bytes of artifacts to clients."
        )

    def _process(self) -> None:
        made = self.registry
        self.lag_s = made.histogram(
            "flashruntime_event_loop_lag_seconds",
            "How late the event loop wakes a timer, measured twice a second.",
            LAG_S,
        )
        built = (__version__, platform.python_version(), sqlite3.sqlite_version)
        made.gauge(
            "flashruntime_build_info",
            "1, with the versions of this coordinator.",
            lambda: {built: 1},
            ("version", "python", "sqlite"),
        )
        made.gauge(
            "process_start_time_seconds",
            "When this coordinator started, in seconds since 1970.",
            lambda: {(): self.started_s},
        )
        made.gauge("process_resident_memory_bytes", "Memory in use.", _resident_bytes)
        made.gauge("process_open_fds", "Open file descriptors.", _open_files)
        made.asked_counter(
            "process_cpu_seconds_total",
            "Processor time of this process.",
            lambda: {(): time.process_time()},
        )

    def answered(self, method: str, route: str, status: int, seconds: float | None) -> None:
        """Count a request; without `seconds` it was a stream."""
        name = method if method in METHODS else "OTHER"
        self.requests.inc(name, route, _STATUS.get(status, "0"))
        if seconds is not None:
            self.request_s.observe(seconds, name, route)
        if route == _CLAIM and status != 200:
            self.claims.inc("empty" if status == 204 else "refused")
        elif route in _HEARTBEATS:
            self.heartbeats.inc(_HEARTBEATS[route], "renewed" if status == 200 else "refused")

    def committed(self, seconds: float) -> None:
        """Note how long a commit of the ledger took."""
        self.commit_s.observe(seconds)

    def stepped(self, lease_id: str, step: int | None, now_ns: int) -> None:
        """Hear of an attempt's progress."""
        self._recovery.stepped(lease_id, step, now_ns)

    def happened(self, events: Iterable[LedgerEvent]) -> None:
        """Count durable events; those of created tasks are counted with their job."""
        for event in events:
            self.events.inc(event.type)
            count = _COUNTED.get(event.type)
            if count is not None:
                count(self, event)
            self._recovery.happened(event)

    async def measure_lag(self, closing: asyncio.Event) -> None:
        """Measure the event loop's lag until `closing` is set."""
        loop = asyncio.get_running_loop()
        while not closing.is_set():
            due_s = loop.time() + LAG_PERIOD_S
            try:
                await asyncio.wait_for(closing.wait(), LAG_PERIOD_S)
            except TimeoutError:
                self.lag_s.observe(max(0.0, loop.time() - due_s))

    def _ledger_bytes(self) -> dict[Labels, float]:
        if self.ledger is None:
            return {}
        files = [self.ledger, self.ledger.with_name(self.ledger.name + "-wal")]
        return {(): sum(file.stat().st_size for file in files if file.exists())}


class RecoveryTimes:
    """Follows each task from the loss of its holder to the progress of its next attempt."""

    def __init__(self, observed: Observed) -> None:
        self._observed = observed
        self._claimable: dict[str, tuple[int, int]] = {}
        self._awaited: dict[str, tuple[int, int]] = {}

    def happened(self, event: LedgerEvent) -> None:
        """Follow an event about a lease."""
        task_id = event.task_id or ""
        if event.type == EventType.TASK_REQUEUED:
            step = -1 if event.step is None else event.step
            pause_ns = round(float(json.loads(event.data_json).get("backoff_s") or 0) * NS_PER_S)
            _remember(self._claimable, task_id, (event.mono_ns + pause_ns, step))
        elif event.type == EventType.LEASE_CLAIMED:
            found = self._claimable.pop(task_id, None)
            if found is not None and event.lease_id is not None:
                self._observe(event.mono_ns - found[0], "claimed")
                _remember(self._awaited, event.lease_id, found)
        elif event.type in {EventType.LEASE_RENEWED, EventType.TASK_COMMIT_ACCEPTED}:
            self._claimable.pop(task_id, None)
            self._awaited.pop(event.lease_id or "", None)

    def stepped(self, lease_id: str, step: int | None, now_ns: int) -> None:
        """Note the first step of a new attempt beyond those of the lost one."""
        found = self._awaited.get(lease_id)
        if found is not None and step is not None and step > found[1]:
            del self._awaited[lease_id]
            self._observe(now_ns - found[0], "first_new_step")

    def _observe(self, ns: int, until: str) -> None:
        self._observed.recovery_s.observe(max(0, ns) / NS_PER_S, until)


def _remember(kept: dict[str, T], key: str, value: T) -> None:
    kept[key] = value
    if len(kept) > MAX_TRACKED:
        for oldest in list(islice(kept, MAX_TRACKED // 10)):
            del kept[oldest]


def _text_in(event: LedgerEvent, name: str) -> str:
    return str(json.loads(event.data_json).get(name) or "unknown")


def _expired(observed: Observed, event: LedgerEvent) -> None:
    data = json.loads(event.data_json)
    reason = str(data.get("reason") or "unknown")
    observed.expired.inc(reason)
    since_ns = event.heard_ns
    if reason == SESSION_ENDED:
        since_ns = observed.ended_ns.get(str(data.get("node_id")), since_ns)
    if since_ns is not None and event.mono_ns >= since_ns:
        observed.detection_s.observe((event.mono_ns - since_ns) / NS_PER_S, reason)


def _session_ended(observed: Observed, event: LedgerEvent) -> None:
    data = json.loads(event.data_json)
    if isinstance(data.get("ended_ns"), int):
        _remember(observed.ended_ns, str(data.get("node_id")), data["ended_ns"])


def _accepted(observed: Observed, event: LedgerEvent) -> None:
    tasks = json.loads(event.data_json).get("tasks")
    if isinstance(tasks, int):
        observed.events.inc(EventType.TASK_CREATED, by=tasks)


_COUNTED: dict[str, Callable[[Observed, LedgerEvent], None]] = {
    EventType.JOB_ACCEPTED: _accepted,
    EventType.LEASE_EXPIRED: _expired,
    "NODE_SESSION_ENDED": _session_ended,
    EventType.LEASE_CLAIMED: lambda observed, _: observed.claims.inc("granted"),
    EventType.TASK_COMMIT_ACCEPTED: lambda observed, _: observed.commits.inc("accepted"),
    EventType.TASK_COMMIT_REJECTED: lambda observed, _: observed.commits.inc("rejected"),
    EventType.FAILURE_CLASSIFIED: lambda observed, event: observed.failures.inc(
        _text_in(event, "failure_class")
    ),
    EventType.RECOVERY_ACTION_SELECTED: lambda observed, event: observed.actions.inc(
        _text_in(event, "action")
    ),
    **dict.fromkeys(
        _ENDED, lambda observed, event: observed.jobs.inc(_ENDED[EventType(event.type)])
    ),
}


def _resident_bytes() -> dict[Labels, float]:
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return {}
    return {(): pages * os.sysconf("SC_PAGE_SIZE")}


def _open_files() -> dict[Labels, float]:
    try:
        return {(): len(os.listdir("/proc/self/fd"))}  # noqa: PTH208 (counted, not opened)
    except OSError:
        return {}
