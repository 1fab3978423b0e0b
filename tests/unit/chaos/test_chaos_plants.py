"""Bugs that are planted into the runtime: each has its experiment, its judge and its source."""

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chaos import cli_plants, judge, registry
from chaos.cli import main
from chaos.payloads import plant as planting
from chaos.plants import PLANTS, Plant
from chaos.soak import read_verdicts
from chaos.testing import FakeMachine

ROOT = Path(__file__).resolve().parents[3]


def module(plant: Plant) -> Any:
    return importlib.import_module(f"chaos.payloads.planted_{plant.name}")


def test_every_bug_that_can_be_planted_has_somebody_to_catch_it() -> None:
    assert sorted(plant.name for plant in PLANTS) == sorted(registry.plants())


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.name)
def test_the_experiment_meant_for_a_bug_is_judged_by_the_invariant_meant_for_it(
    plant: Plant,
) -> None:
    chosen = registry.experiment(plant.experiment)
    assert plant.invariant in {*judge.STANDING, *chosen.invariants}


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.name)
def test_a_bug_fits_the_source_of_today(
    plant: Plant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is appended to a copy, which compiles; a source without what it replaces is refused."""
    source = ROOT.joinpath(*module(plant).MODULE.split(".")).with_suffix(".py")
    copy = tmp_path / "copied_module.py"
    copy.write_text(source.read_text("utf-8"), "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(str(ROOT / "chaos" / "payloads"))
    monkeypatch.setattr(planting.sys, "argv", ["plant.py", f"planted_{plant.name}"])
    beside = importlib.import_module(f"planted_{plant.name}")
    monkeypatch.setattr(beside, "MODULE", "copied_module")
    assert planting.main() == 0
    assert copy.read_text("utf-8").endswith(beside.CODE)
    compile(copy.read_text("utf-8"), str(copy), "exec")
    copy.write_text("nothing of it\n", "utf-8")
    assert planting.main() == 1


@pytest.fixture
def arena(fake_registry: Any, kill: Any, action: Any, experiment: Any) -> None:
    """An experiment with one kill."""
    fake_registry(kill(), experiment(action(5)))


@pytest.fixture
def verb(
    arena: None, machine: FakeMachine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., int]:
    """The verb, with one bug that its experiment does not catch."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "plants", lambda: ("quiet",))
    quiet = Plant("quiet", "a bug", "storm", "one_live_lease")
    monkeypatch.setattr(cli_plants, "PLANTS", (quiet,))
    return lambda *words: main(["plants", *words], machine=lambda: machine)


def test_a_bug_that_nobody_catches_fails_the_verb(verb: Callable[..., int]) -> None:
    assert verb("quiet") == 1
    (told,) = Path("chaos-runs").glob("plants-*/plants.json")
    (only,) = json.loads(told.read_text("utf-8"))["plants"]
    assert (only["plant"], only["caught"]) == ("quiet", False)
    assert read_verdicts(told.parent) == [], "a soak does not take it for the runtime's"


def test_a_bug_that_there_is_not_is_a_usage_error(verb: Callable[..., int]) -> None:
    assert verb("nonsense") == 2
