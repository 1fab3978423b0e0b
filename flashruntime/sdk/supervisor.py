"""Drives a run to its end: launches attempts, waits, classifies, decides. One thread."""

import logging
import queue
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from flashruntime.errors import InvalidInput
from flashruntime.launch.spec import Launcher, Process
from flashruntime.protocol.events import EventType
from flashruntime.protocol.failures import EndedBy, Evidence, RecoveryAction
from flashruntime.protocol.jobs import JobState
from flashruntime.recovery import POLICY_VERSION
from flashruntime.recovery.incidents import Bounds, Judge
from flashruntime.sdk.attempt import (
    Attempt,
    Result,
    conclude,
    launch_spec,
    leftovers,
    not_started,
    prepare,
)
from flashruntime.sdk.decide import failure_mark, history_of, tell
from flashruntime.sdk.home import TaskHome
from flashruntime.sdk.journal import AttemptRecord
from flashruntime.sdk.record import Record, TaskStatus
from flashruntime.sdk.timers import Timers

_LOG = logging.getLogger(__name__)
CHECKS_PER_LIMIT = 4
DUMP_LOOK_S = 0.05
DUMP_LIMIT_S = 10.0
ABANDON_WAIT_S = 15.0
_THIS_NODE = "local"
INCIDENT = Bounds(nodes=1)


@dataclass(slots=True)
class _Running:
    """A launched attempt; `hung` says why it counts as hanging, once it does."""

    attempt: Attempt
    process: Process
    began_ns: int
    signs: tuple[int, int] = (0, 0)
    alive_ns: int = 0
    hung: str | None = None


class Supervisor:
    """Everything but `cancel` belongs to the thread that calls `drive`."""

    def __init__(self, record: Record, launcher: Launcher) -> None:
        self._record = record
        self._plan = record.plan
        self._launcher = launcher
        self._clock = record.clock
        self._timers = Timers(record.clock)
        self._judge = Judge(record.clock.monotonic_ns, INCIDENT)
        self._ready: deque[TaskStatus] = deque(record.tasks)
        self._running: dict[int, _Running] = {}
        self._waiting = 0
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._stopping: tuple[JobState, str] | None = None

    def cancel(self, reason: str) -> None:
        """Ask the run to end; to be called from any thread."""
        self._inbox.put(partial(self._stop, JobState.CANCELLED, reason))

    def drive(self) -> None:
        """Run until every task has ended and the record says how. Never raises."""
        try:
            self._drive()
            state, reason = self._stopping or self._verdict()
        except BaseException as error:  # noqa: BLE001 (thread boundary: the run must end)
            _LOG.exception("the driver of %s failed", self._plan.job_id)
            state, reason = JobState.FAILED, f"the driver failed: {type(error).__name__}: {error}"
            self._abandon()
        self._end(state, reason)

    def _drive(self) -> None:
        limits = self._plan.limits
        self._record.state = JobState.RUNNING
        self._record.event(
            EventType.JOB_ACCEPTED,
            data={
                "tasks": len(self._record.tasks),
                "parallel": self._plan.parallel,
                "max_restarts": limits.max_restarts,
                "policy_version": POLICY_VERSION,
            },
        )
        self._record.mirror.write()
        if limits.timeout_s is not None:
            self._timers.after(limits.timeout_s, self._time_out)
        while True:
            while self._ready and len(self._running) < self._plan.parallel:
                self._launch(self._ready.popleft())
            if not self._running and not self._ready and not self._waiting:
                return
            self._await_message()
            self._timers.fire()
            self._record.mirror.write_if_due()

    def _await_message(self) -> None:
        waits = (self._timers.next_in_s(), self._record.mirror.due_in_s())
        known = [wait_s for wait_s in waits if wait_s is not None]
        try:
            self._inbox.get(timeout=min(known, default=None))()
            while True:
                self._inbox.get_nowait()()
        except queue.Empty:
            pass

    def _launch(self, task: TaskStatus) -> None:
        number = task.attempts
        task.attempts += 1
        task.state = JobState.RUNNING
        try:
            root = self._place(task, first=number == 0)
            attempt = prepare(self._plan, task.index, number, root)
            attempt = replace(attempt, suspect_step=task.suspect_step)
            spec = launch_spec(self._plan, attempt, task.params)
        except (InvalidInput, OSError) as error:
            self._failed(task, self._unlaunched(task, number), not_started(error))
            return
        self._begin(task, attempt.attempt_id, number, str(root))
        try:
            ended = partial(self._inbox.put, partial(self._ended, task))
            process = self._launcher.launch(spec, ended)
        except OSError as error:
            self._failed(task, attempt.attempt_id, not_started(error))
            return
        now_ns = self._clock.monotonic_ns()
        running = _Running(attempt, process, now_ns, alive_ns=now_ns)
        self._running[task.index] = running
        if self._plan.workload.no_progress_s is not None:
            self._watch(running, self._plan.workload.no_progress_s)

    def _place(self, task: TaskStatus, *, first: bool) -> Path:
        home = TaskHome(self._plan.task_dir(task.index))
        if first and self._plan.workload.task_params is not None:
            aside = home.adopt(task.params)
            if aside is not None:
                name = self._record.relative(aside)
                self._record.event(EventType.TASK_SET_ASIDE, task.index, data={"directory": name})
        return home.next_attempt()

    def _unlaunched(self, task: TaskStatus, number: int) -> str:
        attempt_id = f"{self._plan.job_id}-{task.index:03d}-r{number}"
        self._begin(task, attempt_id, number, str(self._plan.task_dir(task.index)))
        return attempt_id

    def _begin(self, task: TaskStatus, attempt_id: str, number: int, root: str) -> None:
        directory = root.removeprefix(f"{self._plan.output_dir}/")
        self._record.keep(
            AttemptRecord(
                attempt_id=attempt_id,
                task=task.index,
                number=number,
                state=JobState.RUNNING,
                directory=directory,
                log=f"{directory}/launcher.log",
                started_at=self._clock.utc_now(),
            )
        )
        self._record.event(EventType.ATTEMPT_STARTED, task.index, attempt_id, {"number": number})

    def _ended(self, task: TaskStatus) -> None:
        running = self._running.pop(task.index)
        evidence = running.process.wait()
        if evidence is None:
            evidence = Evidence(ended_by=EndedBy.WORKER_ERROR, message="its end was not reported")
        if running.hung is not None:
            evidence = evidence.model_copy(
                update={"ended_by": EndedBy.HUNG, "message": running.hung}
            )
        attempt = running.attempt
        result = conclude(self._plan, attempt, evidence)
        progress = attempt.directory.progress
        task.resumed_from = progress.resumed_from
        task.budget = task.budget.reached(progress.checkpoint_step)
        record = self._record.attempts[attempt.attempt_id]
        self._record.keep(
            record.model_copy(
                update={
                    "duration_s": (self._clock.monotonic_ns() - running.began_ns) / 1e9,
                    "exit_code": evidence.exit_code,
                    "signal": evidence.signal,
                    "step": progress.step,
                    "resumed_from": progress.resumed_from,
                }
            )
        )
        if isinstance(result, Result):
            self._succeeded(task, attempt, result)
            return
        files = leftovers(self._plan, attempt)
        self._record.collected(task.index, attempt.attempt_id, files, ok=False)
        if self._stopping is not None:
            self._closed(task, attempt.attempt_id, JobState.CANCELLED, self._stopping[1])
        else:
            self._failed(task, attempt.attempt_id, result)

    def _succeeded(self, task: TaskStatus, attempt: Attempt, result: Result) -> None:
        task.metrics = result.metrics
        self._record.collected(task.index, attempt.attempt_id, result.files, ok=True)
        self._closed(task, attempt.attempt_id, JobState.SUCCEEDED, None)
        self._record.event(
            EventType.TASK_COMMIT_ACCEPTED,
            task.index,
            attempt.attempt_id,
            {
                "outputs": list(result.files),
                "warnings": result.warnings,
                "resumed_from": task.resumed_from,
            },
        )

    def _failed(self, task: TaskStatus, attempt_id: str, evidence: Evidence) -> None:
        key, most = f"{attempt_id}#{task.attempts}", self._plan.limits.max_restarts
        history = history_of(evidence, task.budget, most, key, task.suspect(evidence.step))
        task.suspect_step = history.suspect_step
        task_id = self._record.task_id(task.index)
        decision = self._judge.decide(evidence, history, task_id, _THIS_NODE)
        task.budget = task.budget.spend(decision, failure_mark(evidence))
        record = self._record.attempts[attempt_id]
        about = {"failure_class": decision.failure_class, "action": decision.action}
        self._record.keep(record.model_copy(update=about))
        tell(self._record, task.index, attempt_id, evidence, decision)
        self._closed(task, attempt_id, JobState.FAILED, decision.reason)
        if decision.action is RecoveryAction.PAUSE_JOB:
            self._stop(JobState.FAILED, decision.reason)
        elif decision.retries:
            task.state = JobState.PENDING
            self._waiting += 1
            self._timers.after(decision.backoff_s, partial(self._requeue, task))
        elif decision.exhausted:
            self._record.event(
                EventType.TASK_EXHAUSTED, task.index, data={"reason": decision.reason}
            )
        elif len(self._record.tasks) > 1:
            self._stop(JobState.FAILED, f"task {task.index}: {decision.reason}")

    def _closed(
        self, task: TaskStatus, attempt_id: str, state: JobState, reason: str | None
    ) -> None:
        task.state, task.reason = state, reason
        record = self._record.attempts[attempt_id]
        self._record.keep(record.model_copy(update={"state": state, "reason": reason}))

    def _requeue(self, task: TaskStatus) -> None:
        if self._stopping is None:
            self._waiting -= 1
            self._ready.append(task)

    def _watch(self, running: _Running, limit_s: float) -> None:
        """Look again and again whether an attempt prints or steps."""
        if self._running.get(running.attempt.task) is not running:
            return
        now_ns, signs = self._clock.monotonic_ns(), running.attempt.directory.signs_of_life()
        if signs != running.signs:
            running.signs, running.alive_ns = signs, now_ns
        if now_ns - running.alive_ns >= limit_s * 1e9:
            running.hung = f"no output and no new step for {limit_s:g} s"
            self._record.event(
                EventType.ATTEMPT_HUNG,
                running.attempt.task,
                running.attempt.attempt_id,
                {"reason": running.hung, "stacks": running.process.dump_stacks()},
            )
            self._once_dumped([running], partial(self._stop_one, running))
            return
        self._timers.after(limit_s / CHECKS_PER_LIMIT, partial(self._watch, running, limit_s))

    def _stop_one(self, running: _Running) -> None:
        running.process.stop(self._plan.limits.grace_s)

    def _time_out(self) -> None:
        for running in self._running.values():
            running.process.dump_stacks()
        reason = f"the run exceeded timeout_s={self._plan.limits.timeout_s:g}"
        hanging = list(self._running.values())
        self._once_dumped(hanging, partial(self._stop, JobState.FAILED, reason))

    def _once_dumped(
        self, asked: list[_Running], action: Callable[[], None], limit_s: float = DUMP_LIMIT_S
    ) -> None:
        """Look again and again whether the stacks are printed; a stopped process never does."""
        if limit_s > 0 and any(running.process.is_dumping for running in asked):
            again = partial(self._once_dumped, asked, action, limit_s - DUMP_LOOK_S)
            self._timers.after(DUMP_LOOK_S, again)
        else:
            action()

    def _stop(self, state: JobState, reason: str) -> None:
        """End the run as `state`: nothing new is launched, what runs is stopped."""
        if self._stopping is not None:
            return
        self._stopping = state, reason
        self._ready.clear()
        self._waiting = 0
        for task in self._record.tasks:
            if task.state is JobState.PENDING:
                task.state, task.reason = JobState.CANCELLED, reason
        for running in self._running.values():
            self._stop_one(running)

    def _verdict(self) -> tuple[JobState, str | None]:
        failed = [task for task in self._record.tasks if task.state is not JobState.SUCCEEDED]
        if not failed:
            return JobState.SUCCEEDED, None
        first = failed[0]
        if len(self._record.tasks) == 1:
            return JobState.FAILED, first.reason
        count = f"{len(failed)} of {len(self._record.tasks)} tasks failed"
        return JobState.FAILED, f"{count}; task {first.index}: {first.reason}"

    def _abandon(self) -> None:
        for running in self._running.values():
            running.process.stop(0.0)
        for running in self._running.values():
            running.process.wait(ABANDON_WAIT_S)

    def _end(self, state: JobState, reason: str | None) -> None:
        try:
            # First, for on a full disk it makes room for the record.
            self._plan.clear()
            self._record.end(state, reason)
            self._record.journal.close()
        except Exception:  # noqa: BLE001 (thread boundary: the run must end)
            _LOG.exception("the end of %s could not be written", self._plan.job_id)
