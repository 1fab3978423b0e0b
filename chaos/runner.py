"""Runs one experiment from its plan to its report, and judges saved runs again."""

import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from chaos import exposition, registry, report
from chaos.alive import mark
from chaos.controller import Controller, End, Outcome, Run
from chaos.history import History
from chaos.judge import Judgement, invariants_of, judge
from chaos.model import CannotRun, JobRequest, UsageError, Verdict
from chaos.observe import POLL_S
from chaos.planfile import bound, requests
from chaos.ports import Machine
from chaos.schedule import Experiment, Plan, check_plan, make_plan
from chaos.triggers import check_conditions

DEFAULT_SEED = 1
DEFAULT_OUT = Path("chaos-runs")
MIN_WORKERS, MAX_WORKERS = 2, 8
MAX_COUNT = 1000
EXIT_OF = {Verdict.VALID: 0, Verdict.VIOLATED: 1, Verdict.UNKNOWN: 3}
EXIT_CANNOT_RUN = 4
CANNOT_RUN = "cannot run"
EXIT_INTERRUPTED = 130
PRECEDENCE = (EXIT_INTERRUPTED, 1, EXIT_CANNOT_RUN, 3)


@dataclass(frozen=True, slots=True)
class Options:
    """How to run; `planted` names a deliberately broken build, which a judge must catch.

    `count` is how often the fault is repeated, None for as often as the experiment states.
    """

    seed: int = DEFAULT_SEED
    workers: int | None = None
    out: Path = DEFAULT_OUT
    keep_failed: bool = False
    planted: str | None = None
    count: int | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """One run that is over."""

    folder: Path
    outcome: Outcome
    judgement: Judgement
    wall_s: float

    @property
    def exit_code(self) -> int:
        """The code for this run alone."""
        if self.outcome.end is End.INTERRUPTED:
            return EXIT_INTERRUPTED
        return exit_code(self.judgement)


def exit_code(judgement: Judgement) -> int:
    """Return the code for what is said of one run."""
    return EXIT_CANNOT_RUN if judgement.outcome == CANNOT_RUN else EXIT_OF[judgement.verdict]


def worst(codes: list[int]) -> int:
    """Return the exit code of several runs: violated before cannot run before unknown."""
    return next((code for code in PRECEDENCE if code in codes), 0)


def check_options(options: Options) -> None:
    """Raise UsageError where an option is none that this harness has."""
    workers = options.workers
    if workers is not None and not MIN_WORKERS <= workers <= MAX_WORKERS:
        raise UsageError(f"--workers {workers}: give {MIN_WORKERS} to {MAX_WORKERS}")
    known = registry.plants()
    if options.planted is not None and options.planted not in known:
        raise UsageError(f"--planted {options.planted}: no such plant; known: {', '.join(known)}")


def prepare(
    experiment: Experiment, options: Options, images: Mapping[str, str]
) -> tuple[Plan, Mapping[str, JobRequest]]:
    """Return the plan of a run and the jobs that it submits; touches nothing."""
    check_options(options)
    workers = experiment.workers if options.workers is None else options.workers
    count = experiment.count if options.count is None else options.count
    if options.count is not None and not (experiment.count and 1 <= count <= MAX_COUNT):
        can = f"give 1 to {MAX_COUNT}" if experiment.count else "it repeats nothing"
        raise UsageError(f"--count {count} for {experiment.name}: {can}")
    jobs = registry.workload(experiment.workload).jobs(options.seed, count)
    plan = make_plan(
        experiment,
        options.seed,
        workers,
        jobs,
        images=images,
        planted=options.planted,
        count=count,
    )
    check_names(plan)
    return plan, jobs


def prepare_saved(saved: Plan, images: Mapping[str, str]) -> tuple[Plan, dict[str, JobRequest]]:
    """Return a saved plan as it runs now, and its jobs; raise UsageError where it cannot.

    Its schedule is the saved one; files and images are those of today.
    """
    check_options(Options(workers=saved.workers, planted=saved.planted))
    today = registry.workload(saved.workload).jobs(saved.seed, saved.count)
    jobs = requests(saved, today)
    check_plan(saved.schedule, jobs, saved.workers)
    check_names(saved)
    return bound(saved, jobs, images), jobs


def check_names(plan: Plan) -> None:
    """Raise UsageError where a plan has no fault, or names a fault or judge that there is not."""
    if not plan.schedule:
        raise UsageError(f"experiment {plan.experiment}: its schedule is empty: nothing to do")
    kinds = registry.faults()
    if unknown := [action.kind for action in plan.schedule if action.kind not in kinds]:
        raise UsageError(
            f"experiment {plan.experiment}: no fault of kind {unknown[0]!r}; "
            f"known: {', '.join(sorted(kinds))}"
        )
    registry.invariants(plan.invariants)
    check_conditions(plan.schedule, plan.workers)


def run(
    experiment: Experiment, options: Options, machine: Machine, say: Callable[[str], None]
) -> Result:
    """Run one experiment; whatever was started is healed and judged before this returns.

    Raise CannotRun, with the remedy, where the machine lacks something before anything started.
    """
    check_options(options)
    plan, jobs = prepare(experiment, options, machine.images(options.planted))
    return run_plan(plan, jobs, options, machine, say)


def run_plan(
    plan: Plan,
    jobs: Mapping[str, JobRequest],
    options: Options,
    machine: Machine,
    say: Callable[[str], None],
) -> Result:
    """Run a plan as it is; of the options only `out` and `keep_failed` count any more."""
    began = time.monotonic()
    run_id = f"run-{secrets.token_hex(6)}"
    alive = mark(run_id)
    try:
        folder = new_folder(options.out, f"{plan.experiment}-{plan.seed}")
        write_durably(folder / "plan.json", plan.to_bytes())
        keep = _Keep(folder, options.keep_failed)
        this = Run(run_id, folder, plan, jobs, keep, poll_s=POLL_S)
        outcome = Controller(machine, registry.faults(), this, say).carry_out()
    finally:
        if alive is not None:
            alive.close()
    try:
        judgement = judge_folder(folder)
    except UsageError as error:
        text = f"{folder} was removed while its run was under way: nothing is left to judge"
        raise CannotRun(text) from error
    _write_reports(folder, judgement, say)
    return Result(folder, outcome, judgement, time.monotonic() - began)


def judge_folder(folder: Path, more: Sequence[str] = ()) -> Judgement:
    """Judge the history of a run directory, by `more` invariants than its own.

    Raise UsageError where there is no history, or no invariant of a name.
    """
    path = folder / "history.jsonl"
    if not path.is_file():
        raise UsageError(f"{folder} is no run directory: it has no history.jsonl")
    history = History.load(path)
    names = dict.fromkeys((*invariants_of(history), *more))
    return judge(history, registry.invariants(names))


@dataclass(frozen=True, slots=True)
class _Keep:
    """Says whether to keep the stack: asked for, and something other than its removal failed."""

    folder: Path
    wanted: bool

    def __call__(self) -> bool:
        if not self.wanted:
            return False
        findings = judge_folder(self.folder).findings
        judged = [found for found in findings if found.name != "machine_clean"]
        return any(found.verdict is not Verdict.VALID for found in judged)


def new_folder(out: Path, name: str) -> Path:
    """Create a run directory of its own and point `latest` at it; raise CannotRun if it cannot."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    try:
        out.mkdir(parents=True, exist_ok=True)
        for attempt in range(1, 1000):
            folder = out / (f"{stamp}-{name}" + (f".{attempt}" if attempt > 1 else ""))
            try:
                folder.mkdir()
            except FileExistsError:
                continue
            _point_latest(out, folder)
            return folder
    except OSError as error:
        raise CannotRun(
            f"cannot write to {out}: {error}; choose another folder with --out"
        ) from error
    raise CannotRun(f"{out} has a thousand runs of this second; choose another folder with --out")


def _point_latest(out: Path, folder: Path) -> None:
    link = out / f".latest-{os.getpid()}"
    link.unlink(missing_ok=True)
    link.symlink_to(folder.name)
    link.replace(out / "latest")


def write_durably(path: Path, data: bytes) -> None:
    """Write a new file that is on disk, name included, when this returns."""
    with path.open("xb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    fd = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _write_reports(folder: Path, judgement: Judgement, say: Callable[[str], None]) -> None:
    try:
        report.write(folder, judgement, History.load(folder / "history.jsonl"))
    except Exception as error:  # noqa: BLE001 (boundary: the verdict stands without its report)
        say(f"the report could not be written: {type(error).__name__}: {error}")


def write_metrics(out: Path, results: Sequence[Result], say: Callable[[str], None]) -> None:
    """Write what several runs measured as one file of metrics, beside their directories."""
    try:
        told = [
            exposition.measured(each.judgement, History.load(each.folder / "history.jsonl"))
            for each in results
        ]
        if told:
            (out / exposition.NAME).write_text(exposition.exposition(told), encoding="utf-8")
    except Exception as error:  # noqa: BLE001 (boundary: the verdicts stand without their metrics)
        say(f"the metrics could not be written: {type(error).__name__}: {error}")
