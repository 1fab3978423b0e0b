"""Watches the system under test from outside: a thread copies what it says into the history."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import TypeVar

from chaos.history import HistoryWriter, integer
from chaos.model import JobView, JsonMap, JsonValue, Observation, Receipt
from chaos.ports import Checkpoint, Files, Runtime

POLL_S = 0.1
CHECKPOINT_POLL_S = 1.0
T = TypeVar("T")
Look = Callable[[Observation], bool]


class Observer:
    """Polls jobs, events and checkpoints; whoever waits is woken by each new observation."""

    def __init__(
        self, runtime: Runtime, files: Files, history: HistoryWriter, poll_s: float = POLL_S
    ) -> None:
        self._runtime = runtime
        self._files = files
        self.history = history
        self._poll_s = poll_s
        self._seen = Observation()
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="chaos-observer", daemon=True)
        self._roles: dict[str, str] = {}
        self._committed: dict[str, tuple[Checkpoint, ...]] = {}
        self._began_ns = 0
        self._last_event = 0
        self._checkpoints_due_ns = 0
        self._failing: set[str] = set()
        self._hurried: Counter[str] = Counter()
        self._looks: dict[str, Look] = {}

    @property
    def seen(self) -> Observation:
        """The newest observation."""
        with self._changed:
            return self._seen

    @property
    def silent(self) -> tuple[str, ...]:
        """What gave no answer when it was asked last."""
        return tuple(sorted(self._failing))

    @property
    def roles(self) -> frozenset[str]:
        """The roles of the jobs that are watched."""
        return frozenset(self._roles)

    def start(self, roles: Mapping[str, str]) -> None:
        """Watch these jobs (role -> job id)."""
        self.watch(roles)
        self._began_ns = time.monotonic_ns()
        self._thread.start()

    def watch(self, roles: Mapping[str, str]) -> None:
        """From now on watch these jobs, and no others."""
        self._roles = dict(roles)

    @contextmanager
    def hurried(self, role: str) -> Iterator[None]:
        """Look at the checkpoints of a role at each poll meanwhile."""
        with self._changed:
            self._hurried[role] += 1
        try:
            yield
        finally:
            with self._changed:
                self._hurried[role] -= 1

    @contextmanager
    def looking(self, looks: Mapping[str, Look]) -> Iterator[None]:
        """Ask these at each poll meanwhile: those that say yes are `signs` of the observation."""
        with self._changed:
            self._looks = {**self._looks, **looks}
        try:
            yield
        finally:
            with self._changed:
                self._looks = {
                    name: look for name, look in self._looks.items() if name not in looks
                }

    def stop(self) -> None:
        """Stop watching; may be called twice, or without a start."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=10)

    def elapsed_s(self) -> float:
        """Return the seconds since `start`."""
        return (time.monotonic_ns() - self._began_ns) / 1e9

    def receipt(self, fault_id: str, receipt: Receipt) -> None:
        """Make a receipt visible to triggers."""
        lost = {receipt.lost_lease_id} if receipt.lost_lease_id else set[str]()
        with self._changed:
            receipts = {**self._seen.receipts, fault_id: receipt.landed}
            self._seen = replace(self._seen, receipts=receipts, lost=self._seen.lost | lost)
            self._changed.notify_all()

    def wait(self, condition: Callable[[Observation], bool], timeout_s: float) -> bool:
        """Wait until an observation satisfies `condition`; return whether one did in time."""
        with self._changed:
            return self._changed.wait_for(lambda: condition(self._seen), timeout=timeout_s)

    def poll(self) -> None:
        """Look once; what gives no answer keeps its last value, and is noted once a streak."""
        found = [view for role, job_id in self._roles.items() for view in self._look(role, job_id)]
        jobs = {view.role: view for view in found}
        none: tuple[JsonMap, ...] = ()
        events = self._guarded("events", lambda: self._runtime.events(self._last_event), none)
        for event in events:
            self.history.append("event", event, source="coordinator")
            self._last_event = max(self._last_event, integer(event.get("id")) or 0)
        if time.monotonic_ns() >= self._checkpoints_due_ns:
            self._checkpoints_due_ns = time.monotonic_ns() + int(CHECKPOINT_POLL_S * 1e9)
        seen = replace(
            self.seen,
            elapsed_s=self.elapsed_s(),
            jobs=jobs,
            events=(*self.seen.events, *events),
        )
        signs = frozenset(
            name for name, look in self._looks.items() if self._asked(name, look, seen)
        )
        with self._changed:
            self._seen = replace(
                seen, receipts=self._seen.receipts, lost=self._seen.lost, signs=signs
            )
            self._changed.notify_all()

    def _asked(self, name: str, look: Look, seen: Observation) -> bool:
        return self._guarded(f"sign {name}", lambda: look(seen), False)

    def _watch(self) -> None:
        while not self._stop.is_set():
            self.poll()
            self._stop.wait(self._poll_s)

    def _look(self, role: str, job_id: str) -> tuple[JobView, ...]:
        seen = self.seen.jobs
        if role in seen and seen[role].terminal:
            return tuple(view for view in seen.values() if view.job_id == job_id)
        before = seen.get(role, JobView(role, job_id, state="PENDING"))
        unknown = tuple(view for view in seen.values() if view.job_id == job_id) or (before,)
        views = self._guarded(
            f"job {role}", lambda: self._runtime.job(role, job_id).split(), unknown
        )
        return tuple(self._seen_of(view) for view in views)

    def _seen_of(self, job: JobView) -> JobView:
        """Complete what the coordinator says by what lies on the volume, and record changes."""
        if job.task is not None and not job.terminal and self._checkpoints_wanted(job):
            self._look_at_checkpoints(job, job.task.task_id)
        job = replace(job, checkpoints=len(self._committed.get(job.role, ())))
        if job != self.seen.jobs.get(job.role):
            self.history.append("task", asdict(job), source="coordinator")
        return job

    def _checkpoints_wanted(self, job: JobView) -> bool:
        if self._hurried[job.role] > 0:
            return True
        has_begun = job.task is not None and job.task.attempts > 0
        return has_begun and time.monotonic_ns() >= self._checkpoints_due_ns

    def _look_at_checkpoints(self, job: JobView, task_id: str) -> None:
        before = self._committed.get(job.role, ())
        found = self._guarded(
            f"checkpoints of {job.role}", lambda: self._files.committed(job.job_id, task_id), before
        )
        if found != before:
            self._committed[job.role] = found
            steps: list[JsonValue] = [asdict(checkpoint) for checkpoint in found]
            self.history.append("committed", {"role": job.role, "steps": steps}, source="volume")

    def _guarded(self, what: str, look: Callable[[], T], otherwise: T) -> T:
        try:
            answer = look()
        except Exception as error:  # noqa: BLE001 (thread boundary: what is hurt may fail in any way)
            if what not in self._failing:
                self._failing.add(what)
                self.history.append("note", {"text": f"no word on {what}", "error": repr(error)})
            return otherwise
        if what in self._failing:
            self._failing.discard(what)
            self.history.append("note", {"text": f"word on {what} again"})
        return answer
