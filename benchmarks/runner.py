"""Runs scenarios one after another and saves the document after each.

A scenario that breaks, or takes far longer than its budget, is recorded and the next one runs. An
interrupt keeps what was measured so far.
"""

import os
import signal
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Protocol

from benchmarks import host
from benchmarks.scenario import Bench, Scenario, cleared
from benchmarks.schema import (
    NOT_ON_TARGET,
    BenchError,
    Broken,
    Document,
    Host,
    Row,
    Target,
    Unavailable,
    save,
)

BUDGET_REPEATS = 5
PATIENCE = 3.0
BUSY_SHARE = 0.25
PATIENCE_LEAST_S = 600.0


@dataclass(frozen=True, slots=True)
class Options:
    """How to measure, and where the document goes."""

    out: Path
    scratch: Path
    command: str
    repeats: int = BUDGET_REPEATS
    smoke: bool = False
    target: Target = Target.LOCAL


@dataclass(slots=True)
class Results:
    """What is known so far, on disk after every change."""

    options: Options
    machine: Host
    rows: list[Row] = field(default_factory=list)
    broken: list[Broken] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    interrupted: bool = False
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    _begun_s: float = field(default_factory=time.monotonic)

    def save(self, *, complete: bool = False) -> Document:
        """Write the document and return it."""
        document = Document(
            host=self.machine,
            started_at=self.started_at,
            command=self.options.command,
            smoke=self.options.smoke,
            complete=complete,
            wall_s=time.monotonic() - self._begun_s,
            rows=self.rows,
            broken=self.broken,
            notes=self.notes,
        )
        save(document, self.options.out)
        return document


class Shows(Protocol):
    """Where a run tells of itself: lines that stay, and progress that passes by."""

    def say(self, text: str) -> None:
        """Show a line."""
        ...

    def progress(self, text: str) -> None:
        """Show what is going on."""
        ...


def run(scenarios: Sequence[Scenario], options: Options, screen: Shows) -> tuple[Document, bool]:
    """Measure `scenarios`; return the document, and whether the run was interrupted."""
    results = Results(options, host.describe(os.environ, options.scratch))
    results.notes += _busy(results.machine)
    results.save()
    with tempfile.TemporaryDirectory(prefix="run-", dir=options.scratch) as scratch:
        try:
            for number, scenario in enumerate(scenarios, start=1):
                head = f"[{number}/{len(scenarios)}] {scenario.name}"
                screen.say(f"{head}: at most about {scenario.budget_s:.0f} s with five repeats")
                _measure(scenario, results, Path(scratch) / scenario.name, head, screen)
                results.save()
        except KeyboardInterrupt:
            results.interrupted = True
            results.notes.append("interrupted: what was not measured by then is missing")
    complete = not results.interrupted
    return results.save(complete=complete), results.interrupted


def _measure(scenario: Scenario, results: Results, scratch: Path, head: str, screen: Shows) -> None:
    scratch.mkdir()
    options = results.options
    bench = Bench(
        scenario=scenario,
        scratch=scratch,
        repeats=1 if options.smoke else options.repeats,
        smoke=options.smoke,
        target=options.target,
        say=lambda text: screen.progress(f"{head}: {text}"),
    )
    limit_s = max(PATIENCE_LEAST_S, PATIENCE * scenario.budget_s * bench.repeats / BUDGET_REPEATS)
    begun_s = time.monotonic()
    try:
        if missing := _missing(scenario, options.target):
            bench.report(None, notes=[missing])
        else:
            with time_limit(limit_s):
                scenario.run(bench)
            if not bench.rows:
                raise BenchError(f"{scenario.name} ended without reporting a figure")
    except Unavailable as error:
        bench.report(None, variant="" if not bench.rows else "the rest", notes=[str(error)])
    except Exception as error:  # noqa: BLE001 (one broken scenario must not cost the others)
        screen.say(f"{head}: BROKEN\n{traceback.format_exc().rstrip()}")
        text = f"{type(error).__name__}: {error}"
        results.broken.append(Broken(scenario=scenario.name, error=text))
    finally:
        results.rows += bench.rows
        cleared(scratch)
    took_s = time.monotonic() - begun_s
    for row in bench.rows:
        screen.say(f"{head}: {told(row)}")
    screen.say(f"{head}: {took_s:.1f} s")


def _busy(machine: Host) -> list[str]:
    if machine.load_1m is None or machine.load_1m <= BUSY_SHARE * machine.cores:
        return []
    load = f"{machine.load_1m:g} on {machine.cores} cores"
    return [f"the machine was busy when the run began (load {load}): times are too long"]


def _missing(scenario: Scenario, target: Target) -> str | None:
    if target not in scenario.targets:
        return f"{NOT_ON_TARGET} {target}"
    if scenario.needs_torch and host.installed("torch") is None:
        return "needs torch, which is not installed here; leave out --here to use the image"
    return None


def told(row: Row) -> str:
    """Return a row in one line."""
    name = f"{row.variant}: " if row.variant else ""
    if row.median is None:
        return f"{name}no number: {row.reason}"
    others = "".join(f", {key} {value:.4g}" for key, value in row.comparators.items())
    spread = f"p10 {row.p10:.4g}, p90 {row.p90:.4g}, {row.repeats} repeats"
    return f"{name}{row.median:.4g} {row.unit} ({spread}){others}"


@contextmanager
def time_limit(limit_s: float) -> Iterator[None]:
    """Raise BenchError in this thread after `limit_s`; only the main thread can be reached."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def on_alarm(_number: int, _frame: FrameType | None) -> None:
        raise BenchError(f"took longer than {limit_s:.0f} s")

    previous = signal.signal(signal.SIGALRM, on_alarm)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
