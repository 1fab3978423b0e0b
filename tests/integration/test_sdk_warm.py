"""Runs of this machine whose attempts are forked from a warm interpreter."""

import os
from pathlib import Path

import pytest

import flashruntime as flash
from tests.integration.sdk_runs import Bench

pytestmark = pytest.mark.integration
# A package that may be imported beforehand says who imported it.
PACKAGE = "import os; importer = os.getpid()"
SCRIPT = """
import json, os, joblib
where = {"importer": joblib.importer, "own": joblib.importer == os.getpid()}
json.dump(where, open("metrics.json", "w"))
if os.environ["FLASHML_RESTART_COUNT"] == "0" and os.path.exists("fail"): os.kill(os.getpid(), 9)
"""


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "joblib.py").write_text(PACKAGE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    return Bench(tmp_path)


def importers(run: flash.Run) -> set[object]:
    assert run.state is flash.RunState.SUCCEEDED, run.reason
    return {trial["importer"] for trial in run.trials}


def test_the_attempts_of_a_fan_out_and_of_the_next_are_forked_from_one(bench: Bench) -> None:
    params = [{"n": n} for n in range(3)]
    runs = [
        bench.run(SCRIPT, "{n}", task_params=params, options={"output_dir": bench.output / name})
        for name in ("first", "second")
    ]
    first, second = map(importers, runs)
    assert first == second
    assert len(first) == 1


def test_a_restart_is_forked(bench: Bench) -> None:
    (bench.source / "fail").touch()
    run = bench.run(SCRIPT, options={"max_restarts": 1})
    assert (len(run.attempts), run.trials[0]["own"]) == (2, False)


@pytest.mark.parametrize("switch", ["argument", "environment"])
def test_warm_starts_can_be_switched_off(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, switch: str
) -> None:
    monkeypatch.setenv("FLASHML_WARM_START", "off" if switch == "environment" else "")
    warm = False if switch == "argument" else None
    run = bench.run(SCRIPT, "{n}", task_params=[{"n": 1}, {"n": 2}], warm=warm)
    assert len(importers(run)) == 2
    assert os.getpid() not in importers(run)
