"""Other tools and other projects: the real Chaos Toolkit, and an installation from a checkout."""

import json
import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.bench_stress, pytest.mark.timeout(600)]
ROOT = Path(__file__).parents[3]
STAND_IN = """#!/bin/sh
case "$*" in
    *" run "*) echo '[{"run_dir": "runs/one"}]'; echo "no engine" >&2; exit CODE;;
    *) exit 0;;
esac
"""


def installed(folder: Path, *packages: str) -> Path:
    """Return the programs of a new virtual environment with these packages, as constrained."""
    venv.create(folder, with_pip=True)
    pip = [folder / "bin" / "pip", "install", "-q", "-c", ROOT / "constraints.txt", *packages]
    done = subprocess.run(pip, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-2000:]
    return folder / "bin"


@pytest.fixture(scope="module")
def toolkit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed(tmp_path_factory.mktemp("toolkit"), "chaostoolkit") / "chaos"


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("exported") / "experiment.json"
    command = [sys.executable, "-m", "chaos", "export", "corrupt_newest_checkpoint"]
    subprocess.run([*command, "--to", str(target)], check=True, cwd=ROOT)
    return target


def told(toolkit: Path, verb: str, experiment: Path, python: str, folder: Path) -> tuple[int, Any]:
    """Return the exit code of the toolkit and its journal, None where it wrote none."""
    env = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "CHAOS_PYTHON": python,
        "CHAOS_OUT": str(folder / "runs"),
    }
    command = [toolkit, "--no-version-check", verb, experiment]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, check=False)
    journal = folder / "journal.json"
    return done.returncode, json.loads(journal.read_text("utf-8")) if journal.is_file() else None


def test_the_toolkit_finds_the_experiment_valid(
    toolkit: Path, experiment: Path, tmp_path: Path
) -> None:
    assert told(toolkit, "validate", experiment, sys.executable, tmp_path)[0] == 0


@pytest.mark.parametrize(
    ("code", "verdict"),
    [(0, "valid"), (1, "violated"), (3, "unknown"), (4, None)],
)
def test_only_a_valid_run_ends_the_toolkit_well(
    toolkit: Path, experiment: Path, tmp_path: Path, code: int, verdict: str | None
) -> None:
    python = tmp_path / "python"
    python.write_text(STAND_IN.replace("CODE", str(code)))
    python.chmod(0o755)
    ended, journal = told(toolkit, "run", experiment, str(python), tmp_path)
    assert ended == (0 if code == 0 else 1)
    assert journal["deviated"] is (code != 0)
    (action,) = journal["run"]
    assert (action.get("output") or {}).get("verdict") == verdict
    assert [each["status"] for each in journal["rollbacks"]] == ["succeeded"]


def test_the_toolkit_runs_an_experiment_on_the_real_stack(
    toolkit: Path, experiment: Path, tmp_path: Path
) -> None:
    """Every fault landed and every invariant holds, so the steady state is met afterwards too."""
    ended, journal = told(toolkit, "run", experiment, sys.executable, tmp_path)
    assert ended == 0, journal
    assert (journal["status"], journal["deviated"]) == ("completed", False)
    (action,) = journal["run"]
    assert action["output"]["verdict"] == "valid"
    assert (Path(action["output"]["run_dir"]) / "report.html").is_file()


def test_a_checkout_that_is_installed_brings_the_plugin_to_other_projects(tmp_path: Path) -> None:
    programs = installed(tmp_path / "venv", "-e", ".[chaos]")
    user = tmp_path / "user"
    user.mkdir()
    (user / "conftest.py").write_text('pytest_plugins = ["chaos.pytest_plugin"]\n')
    (user / "test_mine.py").write_text(
        "import pytest\n\n@pytest.mark.chaos('nothing_of_this_name')\ndef test_mine(): pass\n"
    )
    done = subprocess.run(
        [programs / "pytest", "--strict-markers", "--chaos-seed", "3"],
        cwd=user,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout
    assert "no experiment 'nothing_of_this_name'" in done.stdout
