"""A run: what a submission gives to its caller."""

import math
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from threading import Event as Flag
from time import monotonic

from pydantic import JsonValue

from flashruntime.errors import InvalidInput
from flashruntime.launch.progress import log_tail
from flashruntime.protocol.events import Event
from flashruntime.protocol.jobs import JobState
from flashruntime.sdk.journal import Artifact, AttemptRecord, Earlier
from flashruntime.sdk.record import Record
from flashruntime.sdk.timers import MOST_S

RunState = JobState
Trial = Mapping[str, JsonValue]
# A signal that arrives just as the main thread begins to wait is seen only when it wakes.
LOOK_S = 1.0
MAX_LOG_BYTES = 4 * 1024 * 1024
RESERVED = frozenset({"task", "state", "params", "resumed_from", "attempts"})


class Run:
    """A run that this process drives, or has driven; safe to use from any thread."""

    def __init__(self, record: Record, cancel: Callable[[str], None], ended: Flag) -> None:
        self._record = record
        self._cancel = cancel
        self._ended = ended
        self._driver_pid = os.getpid()

    def __repr__(self) -> str:
        return f"<Run {self.job_id} {self.state} in {self.output_dir}>"

    @property
    def job_id(self) -> str:
        """The id of the run."""
        return self._record.plan.job_id

    @property
    def state(self) -> RunState:
        """PENDING, RUNNING, or how it has ended, once all of it has."""
        state = self._record.state
        return RunState.RUNNING if state.terminal and not self._ended.is_set() else state

    @property
    def reason(self) -> str | None:
        """Why it failed or was cancelled."""
        return self._record.reason

    @property
    def output_dir(self) -> Path:
        """Where the run keeps its files."""
        return self._record.plan.output_dir

    @property
    def run_json_path(self) -> Path:
        """The run as a JSON document, for viewers."""
        return self._record.run_json_path

    @property
    def viewer_url(self) -> str:
        """The address of that document."""
        return self.run_json_path.as_uri()

    @property
    def trials(self) -> list[dict[str, JsonValue]]:
        """One dict a task: its metrics, `params`, `resumed_from`, `attempts`, `task`, `state`."""
        return self._record.trials()

    @property
    def attempts(self) -> list[AttemptRecord]:
        """Every attempt of every task, in the order in which they began."""
        return list(self._record.attempts.values())

    @property
    def events(self) -> list[Event]:
        """What has happened, in order."""
        return list(self._record.journal.events)

    @property
    def artifacts(self) -> list[Artifact]:
        """The files that attempts left; `file` is relative to `output_dir`."""
        return list(self._record.artifacts)

    @property
    def history(self) -> list[Earlier]:
        """The runs that used the same output directory before, oldest first."""
        return list(self._record.history)

    def logs(self, tail_lines: int = 200, task: int | None = None) -> str:
        """Return the last lines of the newest attempt of a task, or of each."""
        return logs_of(self.output_dir, self.attempts, tail_lines, task)

    def best_trial(
        self, metric: str | None = None, maximize: bool | None = None
    ) -> dict[str, JsonValue] | None:
        """Return the successful trial with the best finite value, None if no trial has one.

        Metric and direction default to those of the workload's OutputSpec.
        """
        outputs = self._record.plan.workload.outputs
        name = metric or outputs.primary_metric
        up = outputs.maximize if maximize is None else maximize
        return best_of(self.trials, name, maximize=up)

    def wait(self, timeout: float | None = None) -> RunState:
        """Wait until the run has ended, at most `timeout` seconds; return its state.

        InvalidInput in a fork of the process that drives it, where it would never end.
        """
        if os.getpid() != self._driver_pid:
            raise InvalidInput(
                f"{self!r} is driven by process {self._driver_pid}, of which this one is a fork; "
                f"wait for it and cancel it there, or read {self.run_json_path} here"
            )
        end_s = math.inf if timeout is None else monotonic() + min(timeout, MOST_S)
        while (left_s := end_s - monotonic()) > 0 and not self._ended.wait(min(left_s, LOOK_S)):
            pass
        return self.state

    def cancel(self, timeout: float | None = None) -> RunState:
        """End the run: SIGTERM, and SIGKILL after a grace; wait for that; return its state."""
        self._cancel("cancelled by the user")
        return self.wait(timeout)


def best_of(
    trials: Iterable[dict[str, JsonValue]], metric: str | None, *, maximize: bool
) -> dict[str, JsonValue] | None:
    """Return the successful trial with the best finite value of a metric."""
    done = [trial for trial in trials if trial["state"] == JobState.SUCCEEDED]
    names = sorted({name for trial in done for name in trial} - RESERVED)
    if metric is None:
        raise InvalidInput(
            "best_trial needs a metric: name one, or set OutputSpec(primary_metric=...); the "
            f"trials have {', '.join(names) or 'none'}"
        )
    valued = [(value, trial) for trial in done if (value := _number(trial, metric)) is not None]
    if not valued:
        return None
    pick = max if maximize else min
    return pick(valued, key=lambda pair: pair[0])[1]


def _number(trial: Trial, metric: str) -> float | None:
    value = None if metric in RESERVED else trial.get(metric)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if math.isfinite(value) else None


def logs_of(
    output_dir: Path, attempts: Iterable[AttemptRecord], tail_lines: int, task: int | None
) -> str:
    """Return the last lines of the newest attempt of a task, or of each under its number."""
    if isinstance(tail_lines, bool) or not isinstance(tail_lines, int) or tail_lines < 0:
        raise InvalidInput(f"tail_lines={tail_lines!r} must be a whole number of at least 0")
    newest = {attempt.task: attempt for attempt in attempts}
    if task is not None:
        newest = {task: newest[task]} if task in newest else {}
    texts = {
        number: log_tail(output_dir / newest[number].log, tail_lines, MAX_LOG_BYTES)
        for number in sorted(newest)
    }
    if len(texts) == 1:
        return next(iter(texts.values()))
    return "".join(f"==> task {number} <==\n{text}\n" for number, text in texts.items())
