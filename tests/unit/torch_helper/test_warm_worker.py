"""A training script forked from the interpreter of a worker gives what a fresh one gives."""

import json
import os
import shutil
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from flashruntime.launch import warm
from flashruntime.launch.environment import child_environment
from flashruntime.launch.local import LocalLauncher
from flashruntime.launch.spec import LaunchSpec
from flashruntime.worker.warmth import IMPORTS, Warmth, imported_by

pytestmark = pytest.mark.torch

SCRIPT = Path(__file__).parents[3] / "chaos/payloads/digits.py"
ARGV = ("python3", "digits.py", "--steps", "30", "--every", "10", "--width", "32")
TOLD = "import sys; print('modules', len([m for m in sys.modules if m.startswith('torch')]))\n"


def run(root: Path, warmth: Warmth | None) -> tuple[dict[str, Any], int]:
    """Return the metrics, and how much of PyTorch was there when the script began."""
    root.mkdir()
    (root / "digits.py").write_text(TOLD + SCRIPT.read_text())
    given = {"FLASHML_OUTPUT_DIR": str(root), "FLASHML_CKPT_DIR": str(root / "ckpt")}
    env = child_environment(os.environ, {}, given)
    start = None if warmth is None else warmth.start_of(ARGV, root, {})
    evidence = (
        LocalLauncher().launch(LaunchSpec(ARGV, root, env, root / "log", warm=start)).wait(120)
    )
    log = (root / "log").read_text()
    assert evidence is not None
    assert evidence.exit_code == 0, log
    metrics: dict[str, Any] = json.loads((root / "metrics.json").read_text())
    return metrics, int(log.splitlines()[0].split()[1])


def test_training_is_bit_for_bit_the_same_and_begins_with_everything_imported(
    tmp_path: Path,
) -> None:
    shutil.copy(SCRIPT, tmp_path / "digits.py")
    warmth = Warmth(os.environ)
    warmth.learn(imported_by(ARGV, tmp_path))
    for _ in range(1200):
        if warmth._ready != IMPORTS:
            break
        Event().wait(0.05)
    assert "sklearn.datasets:load_digits" in warmth._ready
    forked, there = run(tmp_path / "warm", warmth)
    fresh, nothing = run(tmp_path / "cold", None)
    warm.retire_all()
    assert forked == fresh
    assert (there > 500, nothing) == (True, 0)
