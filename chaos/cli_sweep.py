"""`python -m chaos sweep`: a save disturbed at each of its system calls, and judged each time."""

import argparse
import json
import sys
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from chaos.alive import mark
from chaos.console import Screen
from chaos.model import Audit, CannotRun, JsonValue, Undo, Verdict
from chaos.ports import Machine
from chaos.ports.syscalls import HOWS, KILL
from chaos.runner import DEFAULT_OUT
from chaos.sweep import SUBJECTS, Findings, Point, explore
from chaos.words import counted

EXIT_CODES = {Verdict.VALID: 0, Verdict.VIOLATED: 1, Verdict.UNKNOWN: 3}


def add_verb(verbs: Any) -> None:
    """Declare the verb and its options."""
    verb = verbs.add_parser("sweep", help="every crash point of one save")
    verb.set_defaults(verb=run)
    verb.add_argument(
        "--what", action="append", choices=[*SUBJECTS], help="default: all; may be repeated"
    )
    verb.add_argument(
        "--how",
        choices=HOWS,
        default=KILL,
        help="kill there, or let the call fail; default: %(default)s",
    )
    verb.add_argument("--limit", type=_count, help="boundaries tried; default: all")
    verb.add_argument("--planted", metavar="BUG", help="use a deliberately broken build")
    verb.add_argument("--out", type=Path, default=DEFAULT_OUT, help="default: %(default)s")
    verb.add_argument("--json", action="store_true", help="machine-readable, on stdout")


def _count(word: str) -> int:
    if not word.isdecimal() or int(word) < 1:
        raise argparse.ArgumentTypeError(f"{word!r} must be a whole number from 1")
    return int(word)


def run(arguments: argparse.Namespace, screen: Screen, machine: Callable[[], Machine]) -> int:
    """Sweep what was asked for; the containers of it are removed whatever happens."""
    engine, run_id = machine(), f"sweep-{uuid.uuid4().hex[:8]}"
    chosen = list(dict.fromkeys(arguments.what or SUBJECTS))
    digests = engine.images(arguments.planted)
    folder = arguments.out / run_id
    _write(folder, "plan.json", _plan(arguments, chosen, digests))
    alive = mark(run_id)
    try:
        syscalls = engine.syscalls(run_id, arguments.planted)
        found = [
            explore(syscalls, what, arguments.how, arguments.limit, screen.say) for what in chosen
        ]
    finally:
        engine.undo(Undo("stack", run_id, None, "stack_down"))
        if alive is not None:
            alive.close()
    if not (audit := engine.audit(run_id)).clean:
        raise CannotRun(f"run {run_id} left something behind: {audit}")
    _write(folder, "sweep.json", {"schema": "chaos_sweep_v1", "sweeps": [*map(_swept, found)]})
    verdict = _verdict(found, audit)
    _write(folder, "verdict.json", verdict)
    if arguments.json:
        sys.stdout.write(json.dumps(verdict, allow_nan=False, indent=1) + "\n")
    _show(found, screen)
    screen.say(f"written to {folder}")
    return EXIT_CODES[Verdict.worst([each.verdict for each in found])]


def _write(folder: Path, name: str, content: JsonValue) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(content, allow_nan=False, indent=1)
    (folder / name).write_text(text + "\n", encoding="utf-8")


def _plan(
    arguments: argparse.Namespace, chosen: list[str], digests: Mapping[str, str]
) -> JsonValue:
    return {
        "schema": "chaos_sweep_plan_v1",
        "what": [*chosen],
        "how": arguments.how,
        "limit": arguments.limit,
        "planted": arguments.planted,
        "images": dict(digests),
    }


def _swept(found: Findings) -> JsonValue:
    return {
        "what": found.what,
        "how": found.how,
        "boundaries": found.known,
        "verdict": str(found.verdict),
        "points": [dict(point.to_json()) for point in found.points],
    }


def _verdict(found: list[Findings], audit: Audit) -> JsonValue:
    """Return what verdict.json holds, in the schema of every run."""
    kinds = [(each, point) for each in found for point in each.points]
    return {
        "schema": "chaos_v1",
        "experiment": "sweep",
        "seed": 0,
        "verdict": str(Verdict.worst([each.verdict for each in found])),
        "faults": [_fault(each, point) for each, point in kinds],
        "invariants": [
            {"name": f"survives_every_boundary_of_{each.what}", "verdict": str(each.verdict),
             "detail": _told(each)} for each in found
        ],
        "figures": {f"boundaries_of_{each.what}": each.known for each in found},
        "clean": {name: len(getattr(audit, name)) for name in
                  ("containers", "networks", "volumes", "toxics", "paused")},
    }  # fmt: skip


def _fault(found: Findings, point: Point) -> JsonValue:
    return {
        "id": f"{found.what}-{point.k}",
        "kind": f"{found.how.lower()}_at_syscall",
        "target": found.what,
        "fired_at": _wall(point.at_s),
        "landed": str(point.landed),
        "evidence": {"trace": point.evidence},
    }


def _wall(at_s: float | None) -> str | None:
    return None if at_s is None else datetime.fromtimestamp(at_s, UTC).isoformat()


def _told(found: Findings) -> str:
    bad = sum(1 for point in found.points if point.violations)
    return f"{len(found.points)} of K = {found.known} tried, {counted(bad, 'violation')}"


def _show(found: list[Findings], screen: Screen) -> None:
    heads = ("save", "k", "system call", "landed", "afterwards")
    rows = [(each.what, *_row(point)) for each in found for point in each.points]
    screen.table(heads, rows)
    for each in found:
        screen.say(f"{each.what}: {each.verdict}: {_told(each)}")
        for point in each.points:
            if point.landed != "landed":
                screen.say(f"  k = {point.k}: {point.landed}: {point.evidence}")


def _row(point: Point) -> tuple[str, str, str, str]:
    wrong = "; ".join(point.violations) or "ok"
    return str(point.k), " ".join(point.call.place), str(point.landed), wrong
