"""One run: steady state, load, faults, heal, drain, collect; it heals on every path.

Everything goes to disk before it happens; nothing is judged here.
"""

import re
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path

from chaos import collect
from chaos.disturb import Disturber
from chaos.floor import Floor
from chaos.history import SCHEMA, HistoryWriter
from chaos.journal import NAME as JOURNAL
from chaos.journal import Journal, undo_all
from chaos.load import Load
from chaos.model import CannotRun, ChaosError, JobRequest, JsonMap, JsonValue, Observation, Undo
from chaos.observe import POLL_S, Observer
from chaos.ports import Fault, Machine, RunSpec
from chaos.said import said
from chaos.schedule import Plan
from chaos.signals import Interrupted, Signals
from chaos.stage import Records

STEADY_S = 30.0
RECOVER_S = 20.0
TAIL_LINES = 8


class End(StrEnum):
    """How a run ended; only a completed one says something about the system under test."""

    COMPLETED = "completed"
    CANNOT_RUN = "cannot_run"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class Run:
    """One run to carry out. `folder` exists and holds plan.json.

    `keep` is asked once everything is collected; where it says yes, the stack stays for people to
    look at, and stays in the journal for `heal`. The steady state is waited for `steady_s`, and
    `recover_s` for the system to get over lost holders before anything is undone.
    """

    run_id: str
    folder: Path
    plan: Plan
    jobs: Mapping[str, JobRequest]
    keep: Callable[[], bool]
    poll_s: float = POLL_S
    steady_s: float = STEADY_S
    recover_s: float = RECOVER_S


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended and why; `kept` where its stack is still there."""

    end: End
    reason: str | None = None
    kept: bool = False


class Controller:
    """Carries out one run."""

    def __init__(
        self, machine: Machine, faults: Mapping[str, Fault], run: Run, say: Callable[[str], None]
    ) -> None:
        self._machine = machine
        self._faults = faults
        self._run = run
        self._say = partial(_tell, say)
        self._history = HistoryWriter(run.folder / "history.jsonl")
        self._journal = Journal(run.folder / JOURNAL)
        plan = run.plan
        spec = RunSpec(run.run_id, plan.workers, plan.planted, plan.limits_mib, plan.variants)
        self._world = machine.world(spec)
        self._observer = Observer(self._world.runtime, self._world.files, self._history, run.poll_s)
        self._load = Load(run.jobs, self._world.runtime, self._history)

    def carry_out(self) -> Outcome:
        """Run to the end; whatever happens, heal and audit before returning."""
        with Signals(self._say) as signals:
            outcome = Outcome(End.INTERRUPTED, "stopped before it began")
            try:
                try:
                    outcome = self._attempt()
                finally:
                    signals.hold()
            except Interrupted as signal_name:
                outcome = Outcome(End.INTERRUPTED, f"stopped by {signal_name}")
            finally:
                signals.hold()
                kept = self._finish(outcome)
            if signals.received:
                outcome = Outcome(End.INTERRUPTED, "stopped by a signal")
        return Outcome(outcome.end, outcome.reason, kept)

    def _attempt(self) -> Outcome:
        try:
            self._perform()
        except CannotRun as error:
            return Outcome(End.CANNOT_RUN, str(error))
        except Exception as error:  # noqa: BLE001 (boundary: whatever fails, the run must be healed)
            trace = traceback.format_exc()
            with suppress(OSError, ValueError):
                self._history.append("note", {"text": "the harness failed", "trace": trace})
            return Outcome(End.CANNOT_RUN, f"the harness failed: {type(error).__name__}: {error}")
        return Outcome(End.COMPLETED)

    def _perform(self) -> None:
        self._history.append("run", {"run_id": self._run.run_id, "schema": SCHEMA})
        self._history.append("plan", self._run.plan.to_json())
        self._journal.promise(Undo("stack", self._run.run_id, None, "stack_down"))
        self._say("starting the stack")
        self._world.stack.up()
        self._become_steady()
        self._load.submit_due(self._observer.seen)
        self._observer.start(self._load.roles)
        self._disturb()
        self._heal_faults(until_steady=True)
        self._say("waiting for the jobs to end")
        collect.drain(self._observer, self._run.plan.drain_s, self._submit_due)
        collect.collect(self._world, self._load.roles, self._observer)
        files = frozenset(name for job in self._run.jobs.values() for name in job.files)
        self._guarded(
            "listing processes", lambda: collect.list_processes(self._world, files, self._history)
        )

    def _become_steady(self) -> None:
        if problems := self._unsteady():
            raise CannotRun(
                f"the stack did not reach its steady state within {self._run.steady_s:g} s: "
                f"{'; '.join(problems)}. Read {self._run.folder / 'logs'}"
            )
        self._history.append("steady", {**self._world.stack.addresses()})

    def _unsteady(self) -> tuple[str, ...]:
        deadline = time.monotonic() + self._run.steady_s
        while (problems := self._world.stack.unsteady()) and time.monotonic() < deadline:
            time.sleep(self._run.poll_s)
        return problems

    def _submit_due(self) -> bool:
        """Submit the jobs whose turn has come; return whether all are submitted."""
        if self._load.submit_due(self._observer.seen):
            self._observer.watch(self._load.roles)
        return self._load.done

    def _disturb(self) -> None:
        plan = self._run.plan
        records = Records(
            self._run.run_id,
            self._history,
            self._journal,
            self._machine.undo,
            floor=Floor(plan.workers, plan.floor),
            seed=plan.seed,
        )
        disturber = Disturber(self._faults, self._world, self._observer, records, self._say)
        receipts = disturber.run(plan.schedule, self._submit_due)
        collect.snapshots(self._world, self._observer, when="disturbed")
        self._let_recover([r.lost_lease_id for r in receipts if r.lost_lease_id is not None])

    def _let_recover(self, lost: Sequence[str]) -> None:
        """Undo nothing before the system got over lost holders by itself, or had its time."""

        def recovered(seen: Observation) -> bool:
            return all(seen.moved_on(lease_id) for lease_id in lost)

        self._observer.wait(recovered, self._run.recover_s if lost else 0.0)

    def _heal_faults(self, until_steady: bool) -> None:
        undos = tuple(undo for undo in self._journal.open() if undo.fault_id is not None)
        failures = undo_all(undos, self._machine.undo, self._undone)
        unsteady = self._unsteady() if until_steady else ()
        data: JsonMap = {"failures": [*failures], "unsteady": [*unsteady], "checked": until_steady}
        self._history.append("healed", data)

    def _undone(self, undo: Undo) -> None:
        self._journal.done(undo.undo_id)
        self._history.append("undo", {"state": "done", **asdict(undo)})

    def _finish(self, outcome: Outcome) -> bool:
        """Heal, save the logs, remove the stack (or keep it) and audit; never raises."""
        kept: list[bool] = []
        run_id = self._run.run_id
        self._guarded("stopping the observer", self._observer.stop)
        self._guarded("healing", lambda: self._heal_faults(until_steady=False))
        self._guarded("saving logs", self._save_logs)
        if outcome.end is not End.INTERRUPTED:
            self._guarded("asking whether to keep", lambda: kept.append(self._run.keep()))
        if not any(kept):
            self._guarded("removing the stack", self._remove_stack)
        self._guarded("auditing", lambda: self._audit(run_id, kept=any(kept)))
        self._guarded("ending", lambda: self._record_end(outcome))
        self._guarded("closing the history", self._history.close)
        self._guarded("closing the journal", self._journal.close)
        return any(kept)

    def _save_logs(self) -> None:
        logs = self._run.folder / "logs"
        logs.mkdir(exist_ok=True)
        self._world.stack.save_logs(logs)
        self._history.append("logs", collect.sequences(logs))
        self._history.append("said", said(logs))

    def _remove_stack(self) -> None:
        self._say("removing the stack")
        failures = undo_all(self._journal.open(), self._machine.undo, self._undone)
        if failures:
            remedy = "`python -m chaos heal` tries again, once the engine answers"
            raise ChaosError(f"{'; '.join(failures)}. {remedy}")

    def _audit(self, run_id: str, kept: bool) -> None:
        audit = self._machine.audit(run_id)
        self._history.append("audit", {"kept": kept, **asdict(audit)})

    def _record_end(self, outcome: Outcome) -> None:
        tails: dict[str, JsonValue] = {}
        with suppress(OSError):
            tails.update(log_tails(self._run.folder / "logs", outcome.reason or ""))
        data: JsonMap = {"end": outcome.end, "reason": outcome.reason, "log_tails": tails}
        self._history.append("end", data)

    def _guarded(self, what: str, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception as error:  # noqa: BLE001 (boundary: one failed step must not stop the others)
            self._say(f"{what} failed: {error}")
            with suppress(OSError, ValueError):
                self._history.append("note", {"text": f"{what} failed", "error": repr(error)})


def log_tails(logs: Path, reason: str) -> dict[str, str]:
    """Return the last lines of the containers that a reason names."""
    return {
        path.stem: "\n".join(path.read_text("utf-8", "replace").splitlines()[-TAIL_LINES:])
        for path in sorted(logs.glob("*.log"))
        if re.search(rf"\b{re.escape(path.stem)}\b", reason)
    }


def _tell(say: Callable[[str], None], text: str) -> None:
    """Say something; nobody listening (a closed pipe or terminal) must not stop the healing."""
    with suppress(Exception, SystemExit):
        say(text)
