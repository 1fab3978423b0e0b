"""`python -m chaos`: list, run, replay, shrink, check, powerloss, sweep, coverage, export,
leaks, soak, heal.

Exit codes: 0 valid, 1 an invariant was violated, 2 usage, 3 unknown, 4 the machine or the harness
could not run it, 130 interrupted; of several runs 1 before 4 before 3. `check` of an
interrupted run gives 3; verdict.json says unknown of both, its `end` cannot_run or interrupted.
"""

import argparse
import sys
import traceback
from collections.abc import Callable, Sequence
from io import TextIOWrapper
from pathlib import Path

from chaos import (
    cli_coverage,
    cli_export,
    cli_leaks,
    cli_plan,
    cli_plants,
    cli_power,
    cli_shrink,
    cli_soak,
    cli_sweep,
    registry,
    runner,
    summary,
)
from chaos.cli_plan import print_json, show_plans, told
from chaos.console import Screen
from chaos.heal import heal
from chaos.history import HistoryError
from chaos.model import CannotRun, ChaosError, JsonValue, UsageError
from chaos.ports import Machine
from chaos.runner import DEFAULT_OUT, DEFAULT_SEED, Options, Result
from chaos.schedule import Experiment
from chaos.words import counted

USAGE = 2
UNKNOWN = 3


def main(
    argv: Sequence[str] | None = None, machine: Callable[[], Machine] = registry.machine
) -> int:
    """Run one verb and return its exit code."""
    arguments = _parser().parse_args(argv)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    screen = Screen(sys.stderr if arguments.json else sys.stdout)
    problems = Screen(sys.stderr)
    try:
        return int(arguments.verb(arguments, screen, machine))
    except UsageError as error:
        problems.say(f"chaos: {error}")
        return USAGE
    except HistoryError as error:
        problems.say(f"chaos: {error}")
        return UNKNOWN
    except ChaosError as error:
        problems.say(f"chaos: cannot run: {error}")
        return runner.EXIT_CANNOT_RUN
    except KeyboardInterrupt:
        problems.say("chaos: interrupted")
        return runner.EXIT_INTERRUPTED
    except Exception as error:  # noqa: BLE001 (process boundary: Python's own code, 1, says violated)
        problems.say(traceback.format_exc().rstrip())
        problems.say(f"chaos: cannot run: the harness failed: {type(error).__name__}: {error}")
        return runner.EXIT_CANNOT_RUN


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m chaos", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    listing = verbs.add_parser("list", help="show the experiments")
    listing.set_defaults(verb=_list)
    run = verbs.add_parser("run", help="run experiments (all the quick ones by default)")
    run.set_defaults(verb=_run)
    run.add_argument("experiments", nargs="*", metavar="EXPERIMENT")
    run.add_argument("--seed", type=_seed, help=f"default: {DEFAULT_SEED}")
    run.add_argument("--workers", type=int, help="2 to 8; default: what the experiment states")
    run.add_argument("--count", type=int, help="how often a fault is repeated, where it can be")
    run.add_argument("--dry-run", action="store_true", help="show schedule and targets, do nothing")
    run.add_argument(
        "--planted", metavar="BUG", help="run a deliberately broken build of the runtime"
    )
    run.add_argument("--plan", type=Path, metavar="FILE", help="run this plan, as it is")
    run.add_argument("--out", type=Path, default=DEFAULT_OUT, help="default: %(default)s")
    run.add_argument("--keep-failed", action="store_true", help="keep the stack of a failed run")
    cli_plan.add_verbs(verbs)
    cli_shrink.add_verb(verbs)
    check = verbs.add_parser("check", help="judge a saved history again")
    check.set_defaults(verb=_check)
    check.add_argument("folder", type=Path, metavar="RUN_DIR")
    check.add_argument(
        "--invariant",
        dest="invariants",
        action="append",
        default=[],
        metavar="NAME",
        help="judge by this one too; may be given several times",
    )
    healing = verbs.add_parser("heal", help="undo whatever interrupted runs left")
    healing.set_defaults(verb=_heal)
    healing.add_argument("--out", type=Path, default=DEFAULT_OUT, help="default: %(default)s")
    cli_power.add_verb(verbs)
    cli_sweep.add_verb(verbs)
    cli_coverage.add_verb(verbs)
    cli_export.add_verb(verbs)
    cli_leaks.add_verb(verbs)
    cli_plants.add_verb(verbs)
    cli_soak.add_verb(verbs)
    for verb in (listing, run, check, healing):
        verb.add_argument("--json", action="store_true", help="machine-readable, on stdout")
    return parser


def _seed(word: str) -> int:
    """Read a seed, which every random generator of the workload must take too."""
    if not word.isdecimal() or len(word) > 19 or int(word) >= 1 << 63:
        raise argparse.ArgumentTypeError(f"{word!r} must be a whole number from 0 to 2**63 - 1")
    return int(word)


def _list(arguments: argparse.Namespace, screen: Screen, _machine: Callable[[], Machine]) -> int:
    found = registry.experiments()
    if arguments.json:
        print_json([_described(experiment) for experiment in found])
        return 0
    rows = [(e.name, e.of_set, str(e.workers), e.summary) for e in found]
    screen.table(("experiment", "set", "workers", "what it does"), rows)
    return 0


def _described(experiment: Experiment) -> dict[str, JsonValue]:
    return {
        "name": experiment.name,
        "summary": experiment.summary,
        "set": experiment.of_set,
        "quick": experiment.quick,
        "workers": experiment.workers,
        "workload": experiment.workload,
        "invariants": [*experiment.invariants],
    }


def _run(arguments: argparse.Namespace, screen: Screen, machine: Callable[[], Machine]) -> int:
    if arguments.plan is not None:
        return cli_plan.run_file(arguments, screen, machine)
    names = arguments.experiments
    chosen = (
        [registry.experiment(name) for name in dict.fromkeys(names)]
        if names
        else [experiment for experiment in registry.experiments() if experiment.quick]
    )
    if not chosen:
        raise UsageError("there is no experiment to run; `python -m chaos list` shows them")
    options = Options(
        seed=DEFAULT_SEED if arguments.seed is None else arguments.seed,
        workers=arguments.workers,
        out=arguments.out,
        keep_failed=arguments.keep_failed,
        planted=arguments.planted,
        count=arguments.count,
    )
    runner.check_options(options)
    if arguments.dry_run:
        return _dry_run(chosen, options, arguments.json, screen, machine)
    return _run_all(chosen, options, arguments.json, screen, machine())


def _run_all(
    chosen: Sequence[Experiment], options: Options, as_json: bool, screen: Screen, machine: Machine
) -> int:
    results: list[Result] = []
    codes: list[int] = []
    names = ", ".join(experiment.name for experiment in chosen)
    screen.say(f"seed {options.seed}, {counted(len(chosen), 'experiment')}: {names}")
    for experiment in chosen:
        screen.say(f"== {experiment.name}: {experiment.summary}")
        try:
            result = runner.run(experiment, options, machine, screen.say)
        except CannotRun as error:
            screen.say(f"cannot run {experiment.name}: {error}")
            codes.append(runner.EXIT_CANNOT_RUN)
            break
        results.append(result)
        codes.append(result.exit_code)
        if result.outcome.kept:
            screen.say("the stack was kept; `python -m chaos heal` removes it")
        if result.exit_code == runner.EXIT_INTERRUPTED:
            break
    runner.write_metrics(options.out, results, screen.say)
    if as_json:
        print_json([told(result) for result in results])
    elif results:
        summary.show(results, screen)
    return runner.worst(codes)


def _dry_run(
    chosen: Sequence[Experiment],
    options: Options,
    as_json: bool,
    screen: Screen,
    machine: Callable[[], Machine],
) -> int:
    try:
        images = machine().images(options.planted)
    except CannotRun as error:
        screen.say(f"image digests are left out: {error}")
        images = {}
    plans = [runner.prepare(experiment, options, images)[0] for experiment in chosen]
    show_plans(plans, as_json, screen, machine)
    return 0


def _check(arguments: argparse.Namespace, screen: Screen, _machine: Callable[[], Machine]) -> int:
    judgement = runner.judge_folder(arguments.folder, arguments.invariants)
    if arguments.json:
        print_json(judgement.to_json())
    else:
        summary.show_judgement(judgement, screen)
    return runner.exit_code(judgement)


def _heal(arguments: argparse.Namespace, screen: Screen, machine: Callable[[], Machine]) -> int:
    healing = heal(machine(), [arguments.out], screen.say)
    if arguments.json:
        print_json(
            {
                "healed": [*healing.healed],
                "under_way": [*healing.under_way],
                "failures": [*healing.failures],
            }
        )
    for run_id in healing.under_way:
        screen.say(f"run {run_id} is under way; it was left alone")
    for failure in healing.failures:
        screen.say(f"not undone: {failure}")
    if not healing.failures:
        healed = f"healed {counted(len(healing.healed), 'run')}"
        screen.say(healed if healing.healed else "nothing to heal")
    return 0 if healing.clean else runner.EXIT_CANNOT_RUN
