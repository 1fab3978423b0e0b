"""`python -m benchmarks`: list, run, compare, render.

Exit codes: 0 ok, 1 a scenario broke, 2 usage, 130 interrupted (what was measured is kept).
"""

import argparse
import os
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks import compare, host, inside, registry, render, runner
from benchmarks.console import Screen
from benchmarks.scenario import Scenario
from benchmarks.schema import BenchError, Target, UsageError, load

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).with_name("results")
SCRATCH = ROOT / ".cache" / "bench"
RUNS = ROOT / "bench-runs"
OK, BROKEN, USAGE, INTERRUPTED = 0, 1, 2, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    arguments = _parser().parse_args(words)
    verb: Callable[[argparse.Namespace, Sequence[str]], int] = arguments.verb
    problems = Screen(sys.stderr)
    try:
        return verb(arguments, words)
    except UsageError as error:
        problems.say(f"benchmarks: {error}")
        return USAGE
    except BenchError:
        problems.say(traceback.format_exc().rstrip())
        return BROKEN
    except KeyboardInterrupt:
        problems.say("benchmarks: interrupted")
        return INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    verbs.add_parser("list", help="show the scenarios").set_defaults(verb=_list)
    run = verbs.add_parser("run", help="measure")
    run.set_defaults(verb=_run)
    what = run.add_mutually_exclusive_group(required=True)
    what.add_argument("--all", action="store_true", help="every scenario")
    what.add_argument("--scenario", action="append", default=[], metavar="NAME", dest="names")
    run.add_argument("--repeats", type=_repeats, default=runner.BUDGET_REPEATS, help="default: 5")
    run.add_argument("--smoke", action="store_true", help="everything once and small")
    run.add_argument("--target", type=Target, choices=list(Target), default=Target.LOCAL)
    run.add_argument("--out", type=Path, help="the document; default: see README")
    run.add_argument("--here", action="store_true", help="never in the runtime image")
    run.add_argument("--scratch", type=Path, default=SCRATCH, help="where to work")
    against = verbs.add_parser("compare", help="what got better or worse from A to B")
    against.set_defaults(verb=_compare)
    against.add_argument("before", type=Path, metavar="A.json")
    against.add_argument("after", type=Path, metavar="B.json")
    page = verbs.add_parser("render", help="markdown tables of documents")
    page.set_defaults(verb=_render)
    page.add_argument("documents", nargs="*", type=Path, metavar="FILE")
    return parser


def _repeats(word: str) -> int:
    if not word.isdecimal() or not 1 <= int(word) <= 1000:
        raise argparse.ArgumentTypeError(f"{word!r} must be a whole number from 1 to 1000")
    return int(word)


def _list(_arguments: argparse.Namespace, _words: Sequence[str]) -> int:
    screen = Screen()
    for scenario in registry.scenarios():
        torch = ", torch" if scenario.needs_torch else ""
        targets = "+".join(sorted(scenario.targets))
        about = f"{scenario.section}, {scenario.unit}, {scenario.budget_s:.0f} s, {targets}{torch}"
        screen.say(f"{scenario.name} ({about})\n    {scenario.hypothesis}")
    return OK


def _run(arguments: argparse.Namespace, words: Sequence[str]) -> int:
    scenarios = registry.scenarios() if arguments.all else registry.chosen(arguments.names)
    command = os.environ.get(inside.COMMAND_VARIABLE) or inside.words(words)
    scratch = _new_scratch(arguments.scratch)
    screen = Screen()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        out = arguments.out or _default_out(arguments, scratch)
        if out.is_dir():
            raise UsageError(f"--out {out} is a directory; name the file")
        out.parent.mkdir(parents=True, exist_ok=True)
        if _goes_inside(arguments):
            screen.say(f"no torch on this host: the whole command runs in {inside.image()[0]}")
            code = inside.run(_without_places(arguments), out, scratch, command)
        else:
            options = runner.Options(
                out=out,
                scratch=scratch,
                command=command,
                repeats=arguments.repeats,
                smoke=arguments.smoke,
                target=arguments.target,
            )
            code = _measure(scenarios, options, screen)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if out.exists() and not arguments.here:
        screen.say(f"results: {out}")
    return code


def _goes_inside(arguments: argparse.Namespace) -> bool:
    local = arguments.target is Target.LOCAL
    return local and not arguments.here and host.installed("torch") is None


def _without_places(arguments: argparse.Namespace) -> list[str]:
    """Return the arguments that the command in the image is given."""
    names = [word for name in arguments.names for word in ("--scenario", name)]
    given = ["run", *(["--all"] if arguments.all else names), "--repeats", str(arguments.repeats)]
    return [*given, *(["--smoke"] if arguments.smoke else [])]


def _measure(scenarios: Sequence[Scenario], options: runner.Options, screen: Screen) -> int:
    with screen.live():
        document, interrupted = runner.run(scenarios, options, screen)
    for broken in document.broken:
        screen.say(f"BROKEN {broken.scenario}: {broken.error}")
    if interrupted:
        screen.say("interrupted: what was measured is kept")
        return INTERRUPTED
    return BROKEN if document.broken else OK


def _new_scratch(parent: Path) -> Path:
    parent.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix="run-", dir=parent))


def _default_out(arguments: argparse.Namespace, scratch: Path) -> Path:
    """Return the committed baseline of this host for a full run, a file of its own otherwise."""
    name = host.slug(host.describe(os.environ, scratch))
    if arguments.target is Target.COMPOSE:
        name += "-compose"
    if arguments.all and not arguments.smoke:
        return RESULTS / f"baseline-{name}.json"
    what = "smoke" if arguments.smoke else "-".join(arguments.names)
    return RUNS / f"{host.plain_name(what)}-{name}.json"


def _compare(arguments: argparse.Namespace, _words: Sequence[str]) -> int:
    found = compare.compare(load(arguments.before), load(arguments.after))
    Screen().say(render.changes(found))
    return OK


def _render(arguments: argparse.Namespace, _words: Sequence[str]) -> int:
    paths = arguments.documents or sorted(RESULTS.glob("baseline-*.json"))
    if not paths:
        raise UsageError(f"there is no baseline in {RESULTS}; `make bench` measures one")
    for path in paths:
        Screen().say(render.render(load(path)).rstrip())
    return OK
