"""What is known of a run: its tasks, attempts, artifacts and state. One thread writes it."""

import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from pydantic import JsonValue

from flashruntime.clock import Clock, boot_id
from flashruntime.protocol.budget import Budget
from flashruntime.protocol.events import Event, EventType
from flashruntime.protocol.jobs import JobState, Params
from flashruntime.protocol.tasks import Metrics
from flashruntime.sdk.journal import (
    RUN_NAME,
    SHOWN_EVENTS,
    Artifact,
    AttemptRecord,
    Earlier,
    Journal,
    Mirror,
    RunDocument,
)
from flashruntime.sdk.plan import Plan

Listener = Callable[[Event], None]


@dataclass(slots=True)
class TaskStatus:
    """One task, and how its attempts in this run have ended so far."""

    index: int
    params: Params
    attempts: int = 0
    state: JobState = JobState.PENDING
    reason: str | None = None
    budget: Budget = field(default_factory=Budget)
    metrics: Metrics = field(default_factory=dict)
    resumed_from: int | None = None
    failed_resume: int | None = None
    suspect_step: int | None = None

    def suspect(self, step: int | None) -> int | None:
        """Note a failure at `step`; return it if the one before came right after the same resume.

        An attempt that got no further than where it resumed makes that checkpoint suspect.
        """
        now = step if step is not None and step == self.resumed_from else None
        same, self.failed_resume = now is not None and now == self.failed_resume, now
        return now if same else None

    def trial(self) -> dict[str, JsonValue]:
        """Return the metrics of the task with what identifies it; these names are reserved."""
        return {
            **self.metrics,
            "task": self.index,
            "state": self.state.value,
            "params": dict(self.params),
            "resumed_from": self.resumed_from,
            "attempts": self.attempts,
        }


class Record:
    """The state of a run, each change of it in the journal and, soon after, in run.json."""

    def __init__(self, plan: Plan, clock: Clock, history: list[Earlier]) -> None:
        self.plan = plan
        self.state = JobState.PENDING
        self.reason: str | None = None
        self.started_at = clock.utc_now()
        self.ended_at: datetime | None = None
        self.tasks = [TaskStatus(i, params) for i, params in enumerate(plan.workload.tasks)]
        self.attempts: dict[str, AttemptRecord] = {}
        self.artifacts: list[Artifact] = []
        self.history = history
        self.listeners: list[Listener] = []
        self.clock = clock
        self.journal = Journal(plan.output_dir, plan.job_id, clock)
        self.mirror = Mirror(self.run_json_path, self.document, clock)

    @property
    def run_json_path(self) -> Path:
        """Where the mirror is."""
        return self.plan.output_dir / RUN_NAME

    def task_id(self, task: int) -> str:
        """Return the id of a task."""
        return f"{self.plan.job_id}-{task:05d}"

    def event(
        self,
        kind: EventType,
        task: int | None = None,
        attempt: str | None = None,
        data: Mapping[str, object] | None = None,
    ) -> None:
        """Record what happened."""
        task_id = None if task is None else self.task_id(task)
        event = self.journal.append(kind, task_id, attempt, data or {})
        self.mirror.touch()
        for listener in self.listeners:
            listener(event)

    def keep(self, attempt: AttemptRecord) -> None:
        """Record the newest state of an attempt."""
        self.attempts[attempt.attempt_id] = attempt
        self.mirror.touch()

    def relative(self, path: Path) -> str:
        """Return a path below the output directory as text."""
        return path.relative_to(self.plan.output_dir).as_posix()

    def collected(self, task: int, attempt: str, files: Mapping[str, Path], *, ok: bool) -> None:
        """Record the files that an attempt left."""
        self.artifacts += [
            Artifact(
                task=task,
                attempt_id=attempt,
                path=path,
                file=self.relative(place),
                size_bytes=place.stat().st_size,
                accepted=ok,
            )
            for path, place in files.items()
        ]

    def trials(self) -> list[dict[str, JsonValue]]:
        """Return one dict a task."""
        return [task.trial() for task in self.tasks]

    def end(self, state: JobState, reason: str | None) -> None:
        """End the run, on disk too as far as the disk allows."""
        self.state, self.reason, self.ended_at = state, reason, self.clock.utc_now()
        self.event(_END[state], data={"reason": reason})
        self.mirror.write(durable=True)

    def document(self) -> RunDocument:
        """Return the run as run.json shows it."""
        plan, workload = self.plan, self.plan.workload
        events = self.journal.events
        return RunDocument.model_construct(
            job_id=plan.job_id,
            state=self.state,
            reason=self.reason,
            command=[word.encode("utf-8", "replace").decode() for word in workload.command],
            mode="torchrun" if workload.is_torchrun else "command",
            parallel=plan.parallel,
            max_restarts=plan.limits.max_restarts,
            primary_metric=workload.outputs.primary_metric,
            maximize=workload.outputs.maximize,
            pid=os.getpid(),
            boot_id=boot_id(),
            started_at=self.started_at,
            ended_at=self.ended_at,
            tasks=dict(Counter(task.state.value for task in self.tasks)),
            params=[task.params for task in self.tasks],
            trials=self.trials(),
            attempts=list(self.attempts.values()),
            artifacts=list(self.artifacts),
            events=events[-SHOWN_EVENTS:],
            events_total=len(events),
            history=self.history,
        )


_END = {
    JobState.SUCCEEDED: EventType.JOB_SUCCEEDED,
    JobState.FAILED: EventType.JOB_FAILED,
    JobState.CANCELLED: EventType.JOB_CANCELLED,
}
