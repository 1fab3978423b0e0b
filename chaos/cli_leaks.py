"""`python -m chaos leaks`: this harness dies of SIGKILL at random moments; what stays after `heal`?

Each time a run of its own starts as another process, is killed at a seeded moment, and is healed.
"""

import argparse
import json
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from chaos.alive import under_way
from chaos.console import Screen
from chaos.heal import heal
from chaos.model import Audit, JsonValue, Landed, UsageError, Verdict
from chaos.ports import Machine
from chaos.registry import experiment
from chaos.runner import DEFAULT_OUT, DEFAULT_SEED, EXIT_OF
from chaos.schedule import Draw
from chaos.words import counted

COUNT = 5
FIRST_MS, LAST_MS = 300, 30_000
"""From before the first container until about the end of a quick run, which takes 25 to 35 s."""
VICTIMS = (
    "zombie_partition",
    "kill_in_write_window",
    "zombie_pause",
    "disk_full_commit",
    "packet_loss",
    "engine_restarts",
    "slow_link",
    "clock_jumps",
)
"""Together their faults need every kind of undo: rules, toxics, freezes, mounts, helpers."""

KINDS = ("containers", "networks", "volumes", "toxics", "paused", "chains")


@dataclass(frozen=True, slots=True)
class Death:
    """One SIGKILL of the harness: when, during what, and what was there before and after `heal`."""

    experiment: str
    seed: int
    after_s: float
    during: str
    landed: Landed
    at: str | None = None
    before: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


def add_verb(verbs: Any) -> None:
    """Declare the verb and its options."""
    verb = verbs.add_parser("leaks", help="SIGKILL runs at random moments; heal must leave nothing")
    verb.set_defaults(verb=run)
    verb.add_argument("--count", type=int, default=COUNT, help="kills; default: %(default)s")
    verb.add_argument("--seed", type=int, default=DEFAULT_SEED, help="default: %(default)s")
    verb.add_argument(
        "--experiment", action="append", dest="experiments", metavar="NAME",
        help="what is killed; default: runs that need every kind of undo; may be repeated",
    )  # fmt: skip
    verb.add_argument("--out", type=Path, default=DEFAULT_OUT, help="default: %(default)s")
    verb.add_argument("--json", action="store_true", help="machine-readable, on stdout")


def run(arguments: argparse.Namespace, screen: Screen, machine: Callable[[], Machine]) -> int:
    """Kill as often as asked for; a run that ended before its moment is not counted."""
    if arguments.count < 1:
        raise UsageError(f"--count {arguments.count}: give at least 1")
    victims = [experiment(name).name for name in arguments.experiments or VICTIMS]
    engine = machine()
    engine.images(None)
    folder = (arguments.out / f"leaks-{uuid.uuid4().hex[:8]}").resolve()
    folder.mkdir(parents=True)
    deaths: list[Death] = []
    killed = number = 0
    while killed < arguments.count and number < 3 * arguments.count:
        number += 1
        draw = Draw(arguments.seed + number)
        death = _die(engine, draw, draw.choice("victim", "name", victims), folder)
        killed += death.landed is Landed.LANDED
        deaths.append(death)
        _say(death, killed, arguments.count, screen)
    return _finish(arguments, folder, deaths, remains(engine), screen)


def _die(engine: Machine, draw: Draw, name: str, folder: Path) -> Death:
    out = folder / f"{draw.seed}"
    out.mkdir()
    after_s = draw.integer("victim", "after_ms", FIRST_MS, LAST_MS) / 1000
    words = ["-m", "chaos", "run", name, "--seed", str(draw.seed), "--out", str(out)]
    began = time.monotonic()
    with (out / "console.log").open("wb") as console:
        process = subprocess.Popen(
            [sys.executable, *words], stdout=console, stderr=console, start_new_session=True
        )
        try:
            process.wait(after_s)
            return Death(name, draw.seed, time.monotonic() - began, "over", Landed.MISSED)
        except subprocess.TimeoutExpired:
            died_s, at = time.monotonic() - began, datetime.now(UTC).isoformat()
        finally:
            process.kill()
            process.wait()
    before = _names(remains(engine))
    healing = heal(engine, [out], lambda _line: None)
    left = (*healing.failures, *_names(remains(engine)))
    return Death(name, draw.seed, died_s, _during(out), Landed.LANDED, at, before, left)


def remains(engine: Machine) -> list[Audit]:
    """Return what this machine holds of runs that nobody carries out."""
    audits = [engine.audit(each) for each in engine.runs() if not under_way(each)]
    return [audit for audit in audits if not audit.clean]


def _names(audits: Iterable[Audit]) -> tuple[str, ...]:
    return tuple(name for audit in audits for kind in KINDS for name in getattr(audit, kind))


def _during(out: Path) -> str:
    """Return the kind of the last thing that the killed run wrote down."""
    for history in out.glob("2*/history.jsonl"):
        for line in reversed(history.read_text("utf-8", errors="replace").splitlines()):
            try:
                return str(json.loads(line)["kind"])
            except (ValueError, KeyError, TypeError):
                continue
    return "before its history"


def _say(death: Death, killed: int, wanted: int, screen: Screen) -> None:
    if death.landed is Landed.MISSED:
        screen.say(f"{death.experiment} (seed {death.seed}) ended before its moment: not counted")
        return
    said = "; ".join(death.left) or "nothing left"
    screen.say(
        f"[{killed}/{wanted}] {death.experiment} (seed {death.seed}) killed after "
        f"{death.after_s:.1f} s, after {death.during}, with "
        f"{counted(len(death.before), 'object')} of it: {said}"
    )


def _finish(
    arguments: argparse.Namespace,
    folder: Path,
    deaths: list[Death],
    last: list[Audit],
    screen: Screen,
) -> int:
    killed = [death for death in deaths if death.landed is Landed.LANDED]
    leaked = sum(bool(death.left) for death in killed) + bool(last)
    enough = len(killed) >= arguments.count
    verdict = Verdict.VIOLATED if leaked else Verdict.VALID if enough else Verdict.UNKNOWN
    detail = f"{counted(len(killed), 'SIGKILL')} of the harness, {leaked} left something"
    told: JsonValue = {
        "schema": "chaos_v1",
        "experiment": "leaks",
        "seed": arguments.seed,
        "verdict": str(verdict),
        "faults": [_fault(death) for death in deaths],
        "invariants": [{"name": "heal_leaves_nothing", "verdict": str(verdict), "detail": detail}],
        "figures": {"kills": len(killed), "leaks": leaked},
        "clean": {kind: sum(len(getattr(each, kind)) for each in last) for kind in KINDS},
    }
    text = json.dumps(told, allow_nan=False, indent=1) + "\n"
    (folder / "verdict.json").write_text(text, "utf-8")
    if arguments.json:
        sys.stdout.write(text)
    screen.say(f"leaks: {verdict}: {detail}; written to {folder}")
    return EXIT_OF[verdict]


def _fault(death: Death) -> JsonValue:
    return {
        "id": f"harness-{death.seed}",
        "kind": "kill_harness",
        "target": death.experiment,
        "fired_at": death.at,
        "landed": str(death.landed),
        "evidence": {
            "after_s": round(death.after_s, 3),
            "during": death.during,
            "objects_before": [*death.before],
            "left": [*death.left],
        },
    }
