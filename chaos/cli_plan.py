"""Plans as files: `replay`, `run --plan`, and what `--dry-run` shows of a plan and its targets."""

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from chaos import registry, runner, summary
from chaos.console import Screen
from chaos.model import CannotRun, JsonValue, UsageError
from chaos.planfile import differences, read_plan, schedule_differences
from chaos.ports import Machine
from chaos.runner import DEFAULT_OUT, Options, Result
from chaos.schedule import Plan
from chaos.symbols import meaning
from chaos.words import counted

OWN = ("seed", "workers", "count")


def add_verbs(verbs: Any) -> None:
    """Declare the verbs and their options."""
    verb = verbs.add_parser("replay", help="run the plan of a run directory again, as it is")
    verb.set_defaults(verb=_replay)
    verb.add_argument("folder", type=Path, metavar="RUN_DIR")
    verb.add_argument("--out", type=Path, default=DEFAULT_OUT, help="default: %(default)s")
    verb.add_argument("--keep-failed", action="store_true", help="keep the stack of a failed run")
    verb.add_argument("--json", action="store_true", help="machine-readable, on stdout")


def run_file(arguments: argparse.Namespace, screen: Screen, machine: Callable[[], Machine]) -> int:
    """Run the plan in a file, or show it; it says itself what else options could say."""
    given = [f"--{name}" for name in OWN if getattr(arguments, name) is not None]
    if given or arguments.experiments:
        what = given[0] if given else arguments.experiments[0]
        raise UsageError(f"{what} beside --plan: the plan says it; edit {arguments.plan}")
    plan = read_plan(arguments.plan)
    if arguments.planted is not None:
        plan = replace(plan, planted=arguments.planted)
    if arguments.dry_run:
        show_plans([runner.prepare_saved(plan, plan.images)[0]], arguments.json, screen, machine)
        return 0
    return _run_saved(plan, arguments, screen, machine)


def _replay(arguments: argparse.Namespace, screen: Screen, machine: Callable[[], Machine]) -> int:
    return _run_saved(read_plan(arguments.folder), arguments, screen, machine)


def _run_saved(
    saved: Plan, arguments: argparse.Namespace, screen: Screen, machine: Callable[[], Machine]
) -> int:
    runner.prepare_saved(saved, saved.images)
    started = machine()
    plan, jobs = runner.prepare_saved(saved, started.images(saved.planted))
    for line in (*differences(saved, plan), *_today(saved)):
        screen.say(f"differs: {line}")
    options = Options(out=arguments.out, keep_failed=arguments.keep_failed)
    faults = counted(len(plan.schedule), "fault")
    screen.say(f"== {plan.experiment}, seed {plan.seed}, {faults} as planned")
    result = runner.run_plan(plan, jobs, options, started, screen.say)
    if result.outcome.kept:
        screen.say("the stack was kept; `python -m chaos heal` removes it")
    if arguments.json:
        print_json([told(result)])
    else:
        summary.show([result], screen)
    return result.exit_code


def _today(saved: Plan) -> tuple[str, ...]:
    """Say what the experiment of this name would plan today instead; it is not what runs."""
    try:
        experiment = registry.experiment(saved.experiment)
        count = saved.count if experiment.count and saved.count else None
        options = Options(saved.seed, saved.workers, planted=saved.planted, count=count)
        today = runner.prepare(experiment, options, {})[0]
    except UsageError as error:
        return (f"today's harness has no such experiment to compare with: {error}",)
    told_of = schedule_differences(saved, today)
    return tuple(f"from what {saved.experiment} plans today: {each}" for each in told_of)


def told(result: Result) -> dict[str, JsonValue]:
    """Return what `--json` prints of a run."""
    return {
        "run_dir": str(result.folder),
        "exit_code": result.exit_code,
        "wall_s": round(result.wall_s, 1),
        **result.judgement.to_json(),
    }


def print_json(value: JsonValue) -> None:
    """Print JSON on stdout."""
    sys.stdout.write(json.dumps(value, allow_nan=False, indent=1, sort_keys=True) + "\n")


def show_plans(
    plans: Sequence[Plan], as_json: bool, screen: Screen, machine: Callable[[], Machine]
) -> None:
    """Show schedules, what their symbols stand for, and the stacks that run now."""
    stacks = _stacks(machine)
    if as_json:
        print_json([_planned(plan, stacks) for plan in plans])
        return
    for plan in plans:
        _show_plan(plan, screen)
    if stacks is None:
        screen.say("no engine answers: what runs now is not known")
    for run_id, names in (stacks or {}).items():
        screen.say(f"run {run_id} has {', '.join(names) or 'no container'}; it is another run's")
    if stacks == {}:
        screen.say("no stack of a run is up: each run starts its own, and hits that one alone")


def _planned(plan: Plan, stacks: Mapping[str, tuple[str, ...]] | None) -> JsonValue:
    targets: JsonValue = {symbol: meaning(symbol, plan.workers) for symbol in _symbols(plan)}
    running: JsonValue = None if stacks is None else {k: [*v] for k, v in stacks.items()}
    return {**plan.to_json(), "targets": targets, "running": running}


def _stacks(machine: Callable[[], Machine]) -> dict[str, tuple[str, ...]] | None:
    """Return the containers that carry the label of a run, by run; None without an engine."""
    try:
        engine = machine()
        return {run_id: engine.audit(run_id).containers for run_id in engine.runs()}
    except CannotRun:
        return None


def _symbols(plan: Plan) -> list[str]:
    return list(dict.fromkeys(action.target for action in plan.schedule))


def _show_plan(plan: Plan, screen: Screen) -> None:
    screen.say(
        f"{plan.experiment}, seed {plan.seed}, {plan.workers} workers, at least {plan.floor} stay"
    )
    rows = []
    for action in plan.schedule:
        trigger = {
            name: value
            for name in action.trigger.__slots__
            if (value := getattr(action.trigger, name)) is not None
        }
        when = ", ".join(f"{name}={value}" for name, value in trigger.items())
        params = ", ".join(f"{name}={value}" for name, value in action.params.items())
        back = str(action.comeback)
        rows.append((action.fault_id, action.kind, action.target, when, back, params))
    heads = ("fault", "kind", "target", "fires when", "undone", "parameters")
    screen.table(heads, rows)
    meanings = [(symbol, meaning(symbol, plan.workers)) for symbol in _symbols(plan)]
    screen.table(("target", "what it may match"), meanings)
