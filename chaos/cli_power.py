"""`python -m chaos powerloss`: every state that a power loss may leave of one recorded save."""

import argparse
import json
import sys
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from chaos.alive import mark
from chaos.blackout import PROMISED, Choice, Findings, explore, worst
from chaos.console import Screen
from chaos.history import integer
from chaos.model import CannotRun, JsonValue, Undo, Verdict
from chaos.ports import Machine
from chaos.runner import DEFAULT_OUT, DEFAULT_SEED
from chaos.words import counted

LIMIT, MOUNTS = 60, 2
EXIT_CODES = {Verdict.VALID: 0, Verdict.VIOLATED: 1, Verdict.UNKNOWN: 3}
SHOWN = 10


def add_verb(verbs: Any) -> None:
    """Declare the verb and its options."""
    verb = verbs.add_parser("powerloss", help="every state that a power loss may leave of a save")
    verb.set_defaults(verb=run)
    verb.add_argument(
        "--what", action="append", choices=sorted(PROMISED), help="default: all; may be repeated"
    )
    verb.add_argument("--seed", type=int, default=DEFAULT_SEED, help="default: %(default)s")
    verb.add_argument(
        "--limit", type=_count, default=LIMIT, help="states judged; default: %(default)s"
    )
    verb.add_argument(
        "--images",
        type=_count,
        default=MOUNTS,
        help="of those, how many are mounted as disk images too; default: %(default)s",
    )
    verb.add_argument("--all", action="store_true", help="every state, each as a disk image too")
    verb.add_argument("--planted", metavar="BUG", help="use a deliberately broken build")
    verb.add_argument("--out", type=Path, default=DEFAULT_OUT, help="default: %(default)s")
    verb.add_argument("--json", action="store_true", help="machine-readable, on stdout")


def _count(word: str) -> int:
    if not word.isdecimal():
        raise argparse.ArgumentTypeError(f"{word!r} must be a whole number")
    return int(word)


def run(arguments: argparse.Namespace, screen: Screen, machine: Callable[[], Machine]) -> int:
    """Explore what was asked for; the containers of it are removed whatever happens."""
    limits = (None, None) if arguments.all else (arguments.limit, arguments.images)
    choice = Choice(arguments.seed, *limits)
    chosen = list(dict.fromkeys(arguments.what or PROMISED))
    engine, run_id = machine(), f"powerloss-{uuid.uuid4().hex[:8]}"
    engine.images(arguments.planted)
    alive = mark(run_id)
    try:
        images = engine.disk_images(run_id, arguments.planted)
        found = [explore(images, what, choice, screen.say) for what in chosen]
    finally:
        engine.undo(Undo("stack", run_id, None, "stack_down"))
        if alive is not None:
            alive.close()
    if not (audit := engine.audit(run_id)).clean:
        raise CannotRun(f"run {run_id} left something behind: {audit}")
    _save(arguments.out / run_id, arguments, found)
    _show(found, screen)
    screen.say(f"written to {arguments.out / run_id}")
    return EXIT_CODES[worst(found)]


def _save(folder: Path, arguments: argparse.Namespace, found: list[Findings]) -> None:
    folder.mkdir(parents=True)
    content = {
        "schema": "chaos_powerloss_v1",
        "seed": arguments.seed,
        "planted": arguments.planted,
        "verdict": str(worst(found)),
        "recordings": [each.to_json() for each in found],
    }
    text = json.dumps(content, allow_nan=False, indent=1)
    (folder / "powerloss.json").write_text(text + "\n", encoding="utf-8")
    if arguments.json:
        sys.stdout.write(f"{text}\n")


def _show(found: list[Findings], screen: Screen) -> None:
    rows = []
    for each in found:
        hows = Counter(str(state["how"]).partition(":")[0] for state in each.states)
        told = ", ".join(f"{how} {count}" for how, count in sorted(hows.items()))
        judged = f"{len(each.states)} of {each.known}"
        rows.append((each.what, str(each.verdict), judged, str(len(each.mounted)), told))
    screen.table(("save", "verdict", "states", "images", "how they came about"), rows)
    for each in found:
        for state in each.bad[:SHOWN]:
            after = integer(state["after"])
            place = f"after `{each.operations[after - 1]}`" if after else "before all"
            lost, wrong = _joined(state["lost"]) or "nothing", _joined(state["violations"])
            screen.say(f"{each.what}, {place}, {state['how']} (lost: {lost}): {wrong}")
        if len(each.bad) > SHOWN:
            screen.say(f"and {counted(len(each.bad) - SHOWN, 'more state')} of {each.what}")


def _joined(words: JsonValue) -> str:
    return "; ".join(map(str, words)) if isinstance(words, list) else ""
