"""`make chaos` as a process: what ends with it."""

import os
import select
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TOLD_S = 20.0


@pytest.mark.skipif(
    shutil.which("setpriv") is None,
    reason="no setpriv here, without which the run outlives make: install util-linux",
)
def test_a_sigkill_of_make_ends_the_run_too(tmp_path: Path) -> None:
    """Otherwise `make heal` would find the run under way, and leave its stack alone."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    told = tmp_path / "told"
    os.mkfifo(told)
    for name, script in (
        ("docker/setup.sh", "exit 0"),
        (".venv/bin/python", f"exec 3>{told}; echo under way >&3; exec sleep 60"),
    ):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    make = subprocess.Popen(["make", "chaos"], cwd=tmp_path)
    with make, told.open("rb", buffering=0) as ear:
        assert ear.readline() == b"under way\n"
        make.kill()
        ended, _, _ = select.select([ear], [], [], TOLD_S)
        assert ended, "the run outlived make"
        assert ear.read() == b""
