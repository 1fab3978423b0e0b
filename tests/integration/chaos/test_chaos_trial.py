"""The payload without a framework, as a worker starts it: it crashes as armed, resumes exactly."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "chaos" / "payloads" / "trial.py"
SAME = ("weights_sha256", "sample_chain", "samples_seen", "steps", "loss")


def trial(folder: Path, *words: str, restarts: int = 0) -> subprocess.CompletedProcess[str]:
    folder.mkdir(exist_ok=True)
    variables = {
        "PYTHONPATH": str(ROOT),
        "FLASHML_CKPT_DIR": str(folder / "ckpt"),
        "FLASHML_OUTPUT_DIR": str(folder),
        "FLASHML_ATTEMPT_ID": f"attempt-{restarts}",
        "FLASHML_RESTART_COUNT": str(restarts),
    }
    options = ("--steps", "20", "--every", "5", "--samples", "50", "--ballast-mib", "1")
    return subprocess.run(
        [sys.executable, str(SCRIPT), *options, *words],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def metrics(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "metrics.json").read_text())
    return found


@pytest.mark.parametrize(("way", "code"), [("exit", 3), ("kill", -signal.SIGKILL)])
def test_it_crashes_once_as_armed_and_ends_like_one_that_did_not(
    tmp_path: Path, way: str, code: int
) -> None:
    armed = ("--crash", way, "--crash-at", "13")
    crashed = trial(tmp_path / "a", *armed)
    assert crashed.returncode == code
    assert '"event":"crash"' in crashed.stdout
    assert trial(tmp_path / "a", *armed, restarts=1).returncode == 0
    assert trial(tmp_path / "b").returncode == 0
    resumed, straight = metrics(tmp_path / "a"), metrics(tmp_path / "b")
    assert (resumed["resumed_from"], resumed["executed_steps_this_attempt"]) == (10, 10)
    assert {name: resumed[name] for name in SAME} == {name: straight[name] for name in SAME}


def test_another_trial_ends_otherwise(tmp_path: Path) -> None:
    for number in ("1", "2"):
        assert trial(tmp_path / number, "--trial", number).returncode == 0
    assert metrics(tmp_path / "1")["weights_sha256"] != metrics(tmp_path / "2")["weights_sha256"]


def test_an_import_error_comes_back_at_every_attempt(tmp_path: Path) -> None:
    for restarts in (0, 1):
        ended = trial(tmp_path / "a", "--crash", "import", restarts=restarts)
        assert ended.returncode == 1
        assert "ModuleNotFoundError" in ended.stderr


def test_outputs_hold_seeded_bytes_that_differ_from_one_another(tmp_path: Path) -> None:
    words = ("--steps", "1", "--outputs", "2", "--output-kib", "3")
    assert trial(tmp_path, *words).returncode == 0
    first, second = ((tmp_path / f"output-{number}.bin").read_bytes() for number in range(2))
    assert (len(first), len(second), first == second) == (3 << 10, 3 << 10, False)
