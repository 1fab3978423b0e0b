"""`python -m chaos plants`: each planted bug must be caught by the experiment meant for it."""

import argparse
import json
import sys
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chaos import runner
from chaos.console import Screen
from chaos.model import JsonValue, UsageError, Verdict
from chaos.plants import PLANTS, Plant
from chaos.ports import Machine
from chaos.registry import experiment
from chaos.words import counted

NAME = "plants.json"


@dataclass(frozen=True, slots=True)
class Catch:
    """What the run of one plant came to: `said` is what its invariant says, and all it found."""

    plant: Plant
    verdict: Verdict
    said: str
    seconds: float
    folder: str
    also: tuple[str, ...]

    @property
    def caught(self) -> bool:
        """Whether the invariant meant for it was violated."""
        return self.verdict is Verdict.VIOLATED

    @property
    def in_time(self) -> bool:
        """Whether that took no longer than it may."""
        return self.caught and self.seconds <= self.plant.bound_s

    def to_json(self) -> dict[str, JsonValue]:
        """Return what plants.json says of it."""
        return {
            "plant": self.plant.name,
            "bug": self.plant.bug,
            "experiment": self.plant.experiment,
            "invariant": self.plant.invariant,
            "caught": self.caught,
            "seconds": round(self.seconds, 1),
            "bound_s": self.plant.bound_s,
            "said": self.said,
            "also_violated": [*self.also],
            "folder": self.folder,
        }


def add_verb(verbs: Any) -> None:
    """Declare the verb and its options."""
    verb = verbs.add_parser("plants", help="run builds with a planted bug: each must be caught")
    verb.set_defaults(verb=run)
    verb.add_argument("plants", nargs="*", metavar="PLANT", help="default: all of them")
    verb.add_argument("--seed", type=int, default=runner.DEFAULT_SEED, help="default: %(default)s")
    verb.add_argument("--out", type=Path, default=runner.DEFAULT_OUT, help="default: %(default)s")
    verb.add_argument("--json", action="store_true", help="machine-readable, on stdout")


def run(arguments: argparse.Namespace, screen: Screen, machine: Callable[[], Machine]) -> int:
    """Run each plant; 0 where every one was caught in time, 1 where one was not."""
    chosen = _chosen(arguments.plants)
    folder = (arguments.out / f"plants-{uuid.uuid4().hex[:8]}").resolve()
    engine = machine()
    catches: list[Catch] = []
    for number, plant in enumerate(chosen, start=1):
        screen.say(f"[{number}/{len(chosen)}] {plant.name}: {plant.bug}; {plant.experiment}")
        options = runner.Options(seed=arguments.seed, out=folder / plant.name, planted=plant.name)
        result = runner.run(experiment(plant.experiment), options, engine, screen.say)
        if result.exit_code == runner.EXIT_INTERRUPTED:
            return runner.EXIT_INTERRUPTED
        catches.append(_catch(plant, result))
        screen.say(f"{plant.name}: {_told(catches[-1])}")
    return _finish(arguments, folder, catches, screen)


def _chosen(names: Sequence[str]) -> list[Plant]:
    known = {plant.name: plant for plant in PLANTS}
    if unknown := [name for name in names if name not in known]:
        raise UsageError(f"no plant {unknown[0]!r}; known: {', '.join(known)}")
    return [known[name] for name in dict.fromkeys(names)] or [*PLANTS]


def _catch(plant: Plant, result: runner.Result) -> Catch:
    findings = {found.name: found for found in result.judgement.findings}
    found = findings[plant.invariant]
    also = [name for name, each in findings.items() if each.verdict is Verdict.VIOLATED]
    return Catch(
        plant,
        found.verdict,
        found.detail,
        result.wall_s,
        str(result.folder),
        tuple(name for name in also if name != plant.invariant),
    )


def _told(catch: Catch) -> str:
    if not catch.caught:
        return f"NOT CAUGHT, {catch.plant.invariant} is {catch.verdict}: {catch.said}"
    late = "" if catch.in_time else f", LATER than {catch.plant.bound_s:g} s"
    return f"caught by {catch.plant.invariant} after {catch.seconds:.0f} s{late}: {catch.said}"


def _finish(
    arguments: argparse.Namespace, folder: Path, catches: list[Catch], screen: Screen
) -> int:
    told: JsonValue = {
        "schema": "chaos_v1",
        "seed": arguments.seed,
        "plants": [catch.to_json() for catch in catches],
    }
    text = json.dumps(told, allow_nan=False, indent=1) + "\n"
    (folder / NAME).write_text(text, "utf-8")
    if arguments.json:
        sys.stdout.write(text)
    rows = [
        (
            each.plant.name,
            each.plant.experiment,
            each.plant.invariant,
            "yes" if each.in_time else "late" if each.caught else "NO",
            f"{each.seconds:.0f}",
        )
        for each in catches
    ]
    screen.table(("plant", "experiment", "invariant", "caught", "s"), rows)
    missed = [catch for catch in catches if not catch.in_time]
    caught = len(catches) - len(missed)
    screen.say(
        f"{counted(caught, 'planted bug')} of {len(catches)} caught in time; {folder / NAME}"
    )
    return 1 if missed else 0
