"""Watches the system under test from outside: a thread copies what it says into the history."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import TypeVar

from chaos.history import HistoryWriter, integer
from chaos.model import Checkpoint, JobView, JsonMap, JsonValue, Landed, Observation, Trigger
from chaos.ports import Files, Runtime

POLL_S = 0.1
CHECKPOINT_POLL_S = 1.0
T = TypeVar("T")


def holds(trigger: Trigger, seen: Observation) -> bool:
    """Whether every condition of a trigger holds."""
    job = seen.jobs.get(trigger.role)
    step = job.task.step if job and job.task else None
    conditions = (
        trigger.step_at_least is None or (step is not None and step >= trigger.step_at_least),
        trigger.checkpoints_at_least is None
        or (job is not None and job.checkpoints >= trigger.checkpoints_at_least),
        trigger.after is None or trigger.after in seen.receipts,
        trigger.event is None or (job is not None and trigger.event in _types(seen, job.job_id)),
        trigger.elapsed_s is None or seen.elapsed_s >= trigger.elapsed_s,
    )
    return all(conditions)


def _types(seen: Observation, job_id: str) -> set[str]:
    return {str(event.get("type")) for event in seen.events if event.get("job_id") == job_id}


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
        self.hurry_checkpoints = False

    @property
    def seen(self) -> Observation:
        """The newest observation."""
        with self._changed:
            return self._seen

    @property
    def silent(self) -> tuple[str, ...]:
        """What gave no answer when it was asked last."""
        return tuple(sorted(self._failing))

    def start(self, roles: Mapping[str, str]) -> None:
        """Watch these jobs (role -> job id)."""
        self._roles = dict(roles)
        self._began_ns = time.monotonic_ns()
        self._thread.start()

    def stop(self) -> None:
        """Stop watching; may be called twice, or without a start."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=10)

    def elapsed_s(self) -> float:
        """Return the seconds since `start`."""
        return (time.monotonic_ns() - self._began_ns) / 1e9

    def receipt(self, fault_id: str, landed: Landed) -> None:
        """Make a receipt visible to triggers."""
        with self._changed:
            receipts = {**self._seen.receipts, fault_id: landed}
            self._seen = replace(self._seen, receipts=receipts)
            self._changed.notify_all()

    def wait(self, condition: Callable[[Observation], bool], timeout_s: float) -> bool:
        """Wait until an observation satisfies `condition`; return whether one did in time."""
        with self._changed:
            return self._changed.wait_for(lambda: condition(self._seen), timeout=timeout_s)

    def poll(self) -> None:
        """Look once; what gives no answer keeps its last value, and is noted once a streak."""
        jobs = {role: self._look(role, job_id) for role, job_id in self._roles.items()}
        none: tuple[JsonMap, ...] = ()
        events = self._guarded("events", lambda: self._runtime.events(self._last_event), none)
        for event in events:
            self.history.append("event", event, source="coordinator")
            self._last_event = max(self._last_event, integer(event.get("id")) or 0)
        if time.monotonic_ns() >= self._checkpoints_due_ns:
            self._checkpoints_due_ns = time.monotonic_ns() + int(CHECKPOINT_POLL_S * 1e9)
        with self._changed:
            self._seen = replace(
                self._seen,
                elapsed_s=self.elapsed_s(),
                jobs=jobs,
                events=(*self._seen.events, *events),
            )
            self._changed.notify_all()

    def _watch(self) -> None:
        while not self._stop.is_set():
            self.poll()
            self._stop.wait(self._poll_s)

    def _look(self, role: str, job_id: str) -> JobView:
        before = self.seen.jobs.get(role, JobView(role, job_id, state="PENDING"))
        job = self._guarded(f"job {role}", lambda: self._runtime.job(role, job_id), before)
        if job.task is not None and not job.terminal and self._checkpoints_wanted():
            self._look_at_checkpoints(job, job.task.task_id)
        job = replace(job, checkpoints=len(self._committed.get(role, ())))
        if job != before:
            self.history.append("task", asdict(job), source="coordinator")
        return job

    def _checkpoints_wanted(self) -> bool:
        return self.hurry_checkpoints or time.monotonic_ns() >= self._checkpoints_due_ns

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
