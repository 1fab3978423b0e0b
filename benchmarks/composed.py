"""A chaos experiment on the composed stack, run and read for a benchmark.

What it measured is read from its saved history (events of the coordinator's API among it) and
from the logs of its containers. Each run is kept in bench-runs/chaos.
"""

import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import logs
from benchmarks.logs import Logs
from benchmarks.scenario import Bench
from benchmarks.schema import BenchError, Target, Unavailable
from chaos import registry, runner
from chaos.alive import mark
from chaos.controller import End
from chaos.figures import figures
from chaos.history import History
from chaos.model import CannotRun, Undo, Verdict
from chaos.ports import RunSpec, World

RUNS = Path(__file__).parents[1] / "bench-runs" / "chaos"
BOTH = frozenset({Target.LOCAL, Target.COMPOSE})
WORDS = {Verdict.VIOLATED: "FINDING", Verdict.UNKNOWN: "undecided"}
STEADY_S, POLL_S = 60.0, 0.2
COMPOSE_ONLY = frozenset({Target.COMPOSE})


@dataclass(frozen=True, slots=True)
class Reading:
    """One run of an experiment, judged, with what can be counted from it."""

    folder: Path
    verdict: Verdict
    told: tuple[str, ...]
    history: History
    figures: dict[str, Any]
    logs: Logs
    wall_s: float

    def numbers(self, name: str) -> list[float]:
        """Return a figure that has one number for each fault."""
        found: list[object] | None = self.figures.get(name)
        return [float(each) for each in found or () if isinstance(each, int | float)]

    def number(self, name: str) -> float | None:
        """Return a figure that is one number, None where it could not be counted."""
        found = self.figures.get(name)
        return float(found) if isinstance(found, int | float) else None


def run(bench: Bench, name: str, *, seed: int, count: int | None = None) -> Reading:
    """Run one experiment and read it; Unavailable where this machine cannot start it."""
    options = runner.Options(seed=seed, out=RUNS, count=count)
    try:
        experiment = registry.experiment(name)
        result = runner.run(experiment, options, registry.machine(), bench.say)
    except (CannotRun, ImportError) as error:
        raise Unavailable(f"the experiment {name} cannot run here: {error}") from error
    if result.outcome.end is not End.COMPLETED:
        if result.exit_code == runner.EXIT_INTERRUPTED:
            raise KeyboardInterrupt
        raise BenchError(f"the experiment {name} did not come to its end: {result.outcome.reason}")
    return read(result.folder, result.wall_s)


def read(folder: Path, wall_s: float = 0.0) -> Reading:
    """Read a run directory; BenchError where it holds no judged run."""
    judgement = runner.judge_folder(folder)
    history = History.load(folder / "history.jsonl")
    found = logs.read(folder / "logs")
    if not found.lines:
        raise BenchError(f"{folder} has no container logs with numbered lines")
    return Reading(
        folder=folder,
        verdict=judgement.verdict,
        told=tuple(
            f"{WORDS[each.verdict]}: {each.name}: {each.detail}"
            for each in judgement.findings
            if each.verdict is not Verdict.VALID
        ),
        history=history,
        figures=dict(figures(history)),
        logs=found,
        wall_s=wall_s,
    )


def runs(
    bench: Bench, name: str, times: int, *, count: int | None = None, seed: int = 1
) -> list[Reading]:
    """Run an experiment with so many seeds, one after the other."""
    return [run(bench, name, seed=seed + number, count=count) for number in range(times)]


def together(readings: Sequence[Reading], name: str) -> list[float]:
    """Return a figure of several runs as one list."""
    return [value for reading in readings for value in reading.numbers(name)]


def singles(readings: Sequence[Reading], name: str) -> list[float]:
    """Return a figure that is one number a run; runs that could not count it are left out."""
    found = [reading.number(name) for reading in readings]
    return [value for value in found if value is not None]


def notes(readings: Sequence[Reading]) -> list[str]:
    """Return what must be said of any figure from these runs."""
    verdicts = [reading.verdict for reading in readings]
    valid = sum(verdict is Verdict.VALID for verdict in verdicts)
    seeds = ", ".join(str(reading.history.one("plan")["seed"]) for reading in readings)
    told = [
        f"chaos experiment on the composed stack, seeds {seeds}: {valid} of {len(verdicts)} runs "
        "judged valid",
        logs.together([reading.logs for reading in readings]).told(),
        *_crossed(readings),
    ]
    judged = [text for reading in readings for text in reading.told]
    return [*told, *dict.fromkeys(judged)]


def _crossed(readings: Sequence[Reading]) -> list[str]:
    """Compare what workers logged with what the coordinator's API told."""
    logged = sum(len(reading.logs.of("attempt_accepted")) for reading in readings)
    told = sum(
        event.type == "TASK_COMMIT_ACCEPTED"
        for reading in readings
        for event in reading.history.events()
    )
    return [f"results accepted: {told} by the coordinator's API, {logged} by the workers' logs"]


@contextmanager
def stack(bench: Bench, workers: int = 1) -> Iterator[Mapping[str, str]]:
    """Start the stack of the experiments without a fault; give its addresses, and remove it."""
    run_id = f"run-{secrets.token_hex(6)}"
    held = mark(run_id)
    try:
        machine = registry.machine()
        machine.images(None)
        world = machine.world(RunSpec(run_id, workers))
        try:
            bench.say("starting the stack")
            world.stack.up()
            _until_steady(world)
            yield world.stack.addresses()
        finally:
            machine.undo(Undo("bench/stack", run_id, None, "stack_down"))
    except (CannotRun, ImportError) as error:
        raise Unavailable(f"the composed stack cannot run here: {error}") from error
    finally:
        if held is not None:
            held.close()


def _until_steady(world: World) -> None:
    deadline = time.monotonic() + STEADY_S
    while unsteady := world.stack.unsteady():
        if time.monotonic() > deadline:
            raise CannotRun(f"it is not steady after {STEADY_S:.0f} s: {', '.join(unsteady)}")
        time.sleep(POLL_S)
