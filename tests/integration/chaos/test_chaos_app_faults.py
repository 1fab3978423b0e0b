"""The payload that does harm, as a worker starts it: each mode does what it says, once."""

import importlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from chaos.workloads import app_faults

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "chaos" / "payloads" / "app_faults.py"
OPTIONS = ("--steps", "6", "--every", "2", "--samples", "20", "--at", "3")


def start(folder: Path, mode: str, amount: float, restarts: int = 0) -> Any:
    checkpoints = folder / "job" / "task"
    checkpoints.mkdir(parents=True, exist_ok=True)
    variables = {
        "PYTHONPATH": str(ROOT),
        "FLASHML_CKPT_DIR": str(checkpoints),
        "FLASHML_OUTPUT_DIR": str(folder),
        "FLASHML_ATTEMPT_ID": f"attempt-{restarts}",
        "FLASHML_RESTART_COUNT": str(restarts),
    }
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), "--mode", mode, "--amount", str(amount), *OPTIONS],
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def written(folder: Path, attempt: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / f".evidence/attempt-{attempt}.json").read_bytes())
    return found


@pytest.fixture
def payload(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script as a module, with what lies beside it."""
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    return importlib.import_module("app_faults")


@pytest.mark.parametrize(
    ("mode", "error", "words"),
    [
        ("exception", KeyError, "no such column"),
        ("nan_loss", FloatingPointError, "loss is nan"),
        ("system_exit", SystemExit, "3"),
    ],
)
def test_what_python_can_raise_is_raised(
    payload: Any, mode: str, error: type[BaseException], words: str
) -> None:
    with pytest.raises(error, match=words):
        payload.end(mode, 0.5)


def test_a_flood_is_as_long_as_it_says_and_has_no_line_end(
    payload: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    assert payload.flood(300_000) >= 300_000
    told = capfd.readouterr().out
    assert len(told) >= 300_000
    assert "\n" not in told


def test_a_crash_in_c_leaves_its_word(tmp_path: Path) -> None:
    process = start(tmp_path, "segfault", 0.0)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGSEGV
    assert written(tmp_path)["mode"] == "segfault"


def test_a_second_attempt_does_no_harm(tmp_path: Path) -> None:
    process = start(tmp_path, "system_exit", 0.0, restarts=1)
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert json.loads((tmp_path / "metrics.json").read_bytes())["steps"] == 6
    assert not (tmp_path / ".evidence").exists()


def test_children_outlive_the_process_and_ignore_sigterm(tmp_path: Path) -> None:
    """So that whoever ends the attempt has something to do."""
    process = start(tmp_path, "children", 3)
    process.wait(timeout=60)
    listed = subprocess.run(
        ["ps", "-o", "pid=", "--sid", str(process.pid)], capture_output=True, check=False
    )
    try:
        assert len(listed.stdout.split()) == 3
        assert written(tmp_path)["amount"] == 3
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=60)


def test_no_mode_happens_at_a_step_that_is_saved() -> None:
    """So that a resume has something to do again."""
    for seed in range(20):
        for mode in (*app_faults.PASSING, *app_faults.AMOUNTS):
            step = app_faults._step(seed, mode)
            assert step % app_faults.EVERY
            assert app_faults.EVERY < step < app_faults.STEPS
