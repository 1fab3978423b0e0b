"""Builds of the runtime with a planted bug: the experiment meant for each catches it, in time."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.plants import PLANTS, Plant

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[3]
SOON = {"overwrites_artifacts", "no_hashing"}


def params() -> list[object]:
    later = pytest.mark.bench_stress
    return [
        pytest.param(each, id=each.name, marks=() if each.name in SOON else later)
        for each in PLANTS
    ]


@pytest.mark.parametrize("plant", params())
def test_a_planted_bug_is_caught_in_time(plant: Plant, tmp_path: Path) -> None:
    words = ["plants", plant.name, "--out", str(tmp_path), "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "chaos", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (told,) = json.loads(done.stdout)["plants"]
    assert told["caught"], told
    assert told["seconds"] <= plant.bound_s
