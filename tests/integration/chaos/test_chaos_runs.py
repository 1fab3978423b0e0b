"""Whole runs through the command line: a planted bug, a killed harness, a machine that cannot."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chaos.targets.engine import by_labels

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[3]


def chaos(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "chaos", *words],
        cwd=ROOT,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def objects(engine: Any, run_id: str) -> list[str]:
    filters = by_labels(run_id)
    found = engine.containers.list(all=True, filters=filters, ignore_removed=True)
    names = [c.name for c in found]
    names += [v.name for v in engine.volumes.list(filters=filters)]
    return names + [n.name for n in engine.networks.list(filters=filters)]


def until(condition: Any, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def run_id_of(folder: Path) -> str:
    first = (folder / "journal.jsonl").read_text().splitlines()[0]
    return str(json.loads(first)["promise"]["run_id"])


@pytest.fixture
def started(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """A run under way in a process of its own, with its stack coming up."""
    process = subprocess.Popen(
        [sys.executable, "-m", "chaos", "run", "zombie_partition", "--out", str(tmp_path)],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        until(lambda: list(tmp_path.glob("2*/journal.jsonl")), 20)
        (journal,) = tmp_path.glob("2*/journal.jsonl")
        until(lambda: journal.read_text().strip(), 10)
        yield process, journal.parent
    finally:
        process.kill()
        process.wait()
        chaos("heal", "--out", str(tmp_path))


def test_a_runtime_without_fencing_is_caught(tmp_path: Path) -> None:
    """The zombie's experiment says violated, exit code 1, and names the fence."""
    done = chaos("run", "zombie_partition", "--planted", "no_fencing", "--out", str(tmp_path))
    assert done.returncode == 1, done.stdout + done.stderr
    (verdict,) = tmp_path.glob("2*/verdict.json")
    said = json.loads(verdict.read_text())
    assert {fault["landed"] for fault in said["faults"]} == {"landed"}
    violated = {i["name"] for i in said["invariants"] if i["verdict"] == "violated"}
    assert "fenced_holder" in violated


def test_a_killed_worker_comes_back_and_its_job_ends_like_the_undisturbed_one(
    tmp_path: Path,
) -> None:
    """One cycle of lease_recovery: the whole of it repeats this, and measures it."""
    done = chaos("run", "lease_recovery", "--count", "1", "--out", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    (verdict,) = tmp_path.glob("2*/verdict.json")
    figures = json.loads(verdict.read_text())["figures"]
    assert [len(figures[name]) for name in ("mttd_s", "reclaim_s", "mttr_s", "commit_s")] == [1] * 4
    assert (figures["completed"], figures["correct"]) == (1, 1)


@pytest.mark.parametrize("at", ["coming_up", "disturbing"])
def test_after_sigkill_of_the_harness_heal_leaves_nothing(
    engine: Any, started: tuple[subprocess.Popen[bytes], Path], at: str
) -> None:
    process, folder = started
    run_id = run_id_of(folder)
    history = folder / "history.jsonl"
    if at == "coming_up":
        until(lambda: objects(engine, run_id), 30)
    else:
        until(lambda: '"kind": "fault_firing"' in history.read_text(), 90)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert objects(engine, run_id)
    healed = chaos("heal", "--out", str(folder.parent))
    assert healed.returncode == 0, healed.stdout + healed.stderr
    until(lambda: not objects(engine, run_id), 5)
    assert chaos("heal", "--out", str(folder.parent)).returncode == 0


def test_an_interrupt_heals_before_it_ends_with_130(
    engine: Any, started: tuple[subprocess.Popen[bytes], Path]
) -> None:
    process, folder = started
    run_id = run_id_of(folder)
    until(lambda: objects(engine, run_id), 30)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130
    assert objects(engine, run_id) == []


def test_without_an_engine_the_run_says_so_and_ends_with_4(tmp_path: Path) -> None:
    done = chaos(
        "run", "zombie_partition", "--out", str(tmp_path), DOCKER_HOST="unix:///nowhere.sock"
    )
    assert done.returncode == 4
    assert "no Docker engine answers at unix:///nowhere.sock" in done.stdout + done.stderr
    assert "make chaos" in done.stdout + done.stderr


def test_a_missing_image_is_named_with_its_remedy(tmp_path: Path) -> None:
    done = chaos(
        "run", "zombie_partition", "--out", str(tmp_path), FLASHML_HELPER_IMAGE="nobody/none:0"
    )
    assert done.returncode == 4
    assert "nobody/none:0 is missing" in done.stdout + done.stderr


def test_an_unknown_plant_is_named(tmp_path: Path) -> None:
    done = chaos("run", "zombie_partition", "--planted", "nonsense", "--out", str(tmp_path))
    assert done.returncode == 2
    assert "nonsense" in done.stderr
    assert "no_fencing" in done.stderr


def test_a_port_that_was_snatched_is_replaced_by_another(
    engine: Any, yard: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The free ports of the first try are taken when compose comes to them."""
    from chaos.targets import stack

    tried: list[dict[str, str]] = []
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        honest = stack.free_ports

        def first_taken() -> dict[str, str]:
            tried.append(honest() | ({} if tried else {"FLASHML_TOXIPROXY_PORT": port}))
            return tried[-1]

        monkeypatch.setattr(stack, "free_ports", first_taken)
        run_id = f"{yard.run_id}-ports"
        project = stack.Project(run_id, 1, {})
        try:
            project.up_on_free_ports()
            assert len(tried) == 2
        finally:
            from chaos.model import Undo

            yard.machine.undo(Undo("u", run_id, None, "stack_down"))
    assert objects(engine, run_id) == []
