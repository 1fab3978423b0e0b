"""The benchmark command on real processes, and in the runtime image."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.schema import Document, load

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[2]
LIGHT = ("submit_latency", "import_time", "fanout_throughput", "resume_verify")


def command(out: Path, *words: str) -> list[str]:
    scratch = ("--scratch", str(out.parent / "scratch"))
    return [sys.executable, "-m", "benchmarks", "run", "--out", str(out), *scratch, *words]


def containers(results: Path) -> str:
    """Return the containers, running or not, that have this directory mounted."""
    listing = ["docker", "ps", "--all", "--quiet", "--filter", f"volume={results.resolve()}"]
    return subprocess.run(listing, check=True, capture_output=True, text=True).stdout


def measured(document: Document) -> set[str]:
    return {row.scenario for row in document.rows if row.median is not None}


def test_what_needs_no_torch_is_measured_on_the_host(tmp_path: Path) -> None:
    names = [word for name in LIGHT for word in ("--scenario", name)]
    out = tmp_path / "o.json"
    done = subprocess.run(command(out, "--smoke", "--here", *names), cwd=ROOT, check=False)
    assert done.returncode == 0
    document = load(out)
    assert measured(document) == set(LIGHT)
    assert document.host.place == "host"
    assert document.complete
    [read] = [row for row in document.rows if row.variant == "checkpoints read"]
    assert read.median == pytest.approx(1.0, abs=0.2)
    assert list((tmp_path / "scratch").iterdir()) == []


def test_without_torch_here_all_of_it_runs_in_the_image(tmp_path: Path) -> None:
    out = tmp_path / "o.json"
    words = ("--smoke", "--scenario", "checkpoint_stall", "--scenario", "submit_latency")
    done = subprocess.run(command(out, *words), cwd=ROOT, check=False, timeout=240)
    assert done.returncode == 0
    document = load(out)
    assert measured(document) == {"checkpoint_stall", "submit_latency"}
    if document.host.place != "host":
        assert document.host.place.startswith("image flashruntime/")
        assert out.stat().st_uid == os.getuid()
    assert document.host.torch
    assert {"torch.save", "DCP save"} <= set(document.rows[0].comparators)
    assert document.command.startswith("python -m benchmarks run --out")
    assert containers(tmp_path) == ""


@pytest.mark.parametrize("place", [("--here",), ()], ids=["host", "image"])
def test_an_interrupt_keeps_what_is_there_and_ends_with_130(
    tmp_path: Path, place: tuple[str, ...]
) -> None:
    out = tmp_path / "o.json"
    names = ("--scenario", "import_time", "--scenario", "fanout_throughput")
    words = (*place, "--repeats", "1", *names)
    process = subprocess.Popen(command(out, *words), cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("[2/2]"):
            process.send_signal(signal.SIGINT)
            break
    rest = process.stdout.read()
    assert process.wait(60) == 130, rest
    document = load(out)
    assert measured(document) == {"import_time"}
    assert not document.complete
    assert containers(tmp_path) == ""
