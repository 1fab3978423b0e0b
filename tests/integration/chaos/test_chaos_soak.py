"""Long runs: a soak that goes on where it stopped, and a harness that dies at random moments."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.cli_soak import carry_on
from chaos.console import Screen
from chaos.registry import machine
from chaos.soak import Stage

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[3]


def test_a_soak_goes_on_after_the_last_whole_step_and_ends_at_a_step_that_cannot_run(
    tmp_path: Path,
) -> None:
    """Its steps are commands of their own: healing runs here, as the quickest there is."""
    words = [["heal"], ["heal", "--unknown-option"]]
    broken = Stage("healings", "healings", 2, 1, lambda n: words[n - 1])
    found, code = carry_on([broken], tmp_path, 60, machine(), Screen(io.StringIO()))
    assert (code, [step.exit_code for step in found[0].steps]) == (4, [0])
    mended = Stage("healings", "healings", 2, 1, lambda _n: ["heal"])
    found, code = carry_on([mended], tmp_path, 60, machine(), Screen(io.StringIO()))
    assert (code, found[0].reached, len(found[0].steps)) == (0, 2, 2)


@pytest.mark.bench_stress
@pytest.mark.timeout(600)
def test_five_sigkills_of_the_harness_leave_nothing_after_heal(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "chaos", "leaks", "--count", "5", "--out", str(tmp_path)],
        cwd=ROOT,
        env=os.environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (verdict,) = tmp_path.glob("leaks-*/verdict.json")
    said = json.loads(verdict.read_text())
    assert said["figures"] == {"kills": 5, "leaks": 0}
    assert any(fault["evidence"]["objects_before"] for fault in said["faults"])
