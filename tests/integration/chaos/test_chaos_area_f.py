"""Reported failures of harnesses on Docker, each as a check against the real engine.

Those of Toxiproxy, and those of killed and paused containers, stand with their faults.
"""

import json
import os
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from chaos.alive import mark
from chaos.collect import sequences
from chaos.history import History, HistoryWriter
from chaos.model import CannotRun, Undo
from chaos.ports import RunSpec, World
from chaos.said import said
from chaos.targets import stack
from chaos.targets.engine import by_labels, run_labels
from chaos.targets.machine import DockerMachine

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[3]
RUNTIME = os.environ.get("FLASHML_RUNTIME_IMAGE", "flashruntime/runtime:local")
HELPER = os.environ.get("FLASHML_HELPER_IMAGE", "flashruntime/helper:local")
LONG = 40_000
MOUNTED_S = 20.0


@pytest.fixture
def run_id() -> Iterator[str]:
    """A run of its own; whatever carries its label is removed."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    alive = mark(name)
    yield name
    DockerMachine().undo(Undo("u", name, None, "stack_down"))
    if alive is not None:
        alive.close()


@pytest.fixture(scope="module")
def small_stack() -> Iterator[World]:
    """A coordinator, Toxiproxy and one worker, as a run starts them."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    alive = mark(name)
    machine = DockerMachine()
    world = machine.world(RunSpec(name, workers=1))
    try:
        world.stack.up()
        until(lambda: not world.stack.unsteady(), 30)
        yield world
    finally:
        machine.undo(Undo("u", name, None, "stack_down"))
        if alive is not None:
            alive.close()


def until(condition: Callable[[], object], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def left(engine: Any, run_id: str) -> list[Any]:
    filters = by_labels(run_id)
    found = engine.containers.list(all=True, filters=filters, ignore_removed=True)
    return [*found, *engine.networks.list(filters=filters), *engine.volumes.list(filters=filters)]


def test_135_no_container_has_a_fixed_name() -> None:
    """Two projects on one machine never stand in each other's way."""
    files = [word for name in stack.FILES for word in ("--file", name)]
    words = ["docker", "compose", "--env-file", "/dev/null", *files, "config", "--format", "json"]
    told = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    services = json.loads(told.stdout)["services"]
    assert [name for name, service in services.items() if "container_name" in service] == []


def test_135_a_name_in_use_is_told_and_its_container_is_not_ours_to_remove(
    engine: Any, run_id: str
) -> None:
    """Somebody's container has the very name; heal takes away ours alone."""
    project = stack.Project(run_id, 1, {})
    foreign = engine.containers.create(HELPER, ["true"], name=f"{project.name}-coordinator-1")
    try:
        with pytest.raises(CannotRun, match=f"{project.name}-coordinator-1.*already in use"):
            project.up_on_free_ports()
        DockerMachine().undo(Undo("u", run_id, None, "stack_down"))
        assert left(engine, run_id) == []
        foreign.reload()
    finally:
        foreign.remove(force=True)


def test_143_a_restarted_coordinator_is_asked_on_the_port_that_it_has(small_stack: World) -> None:
    """An engine gives a new random port at each start; ours is chosen once and stays."""
    before = small_stack.stack.addresses()["coordinator"]
    coordinator = small_stack.containers.coordinator()
    since = time.monotonic_ns()
    small_stack.containers.kill(coordinator)
    assert small_stack.containers.wait_death(coordinator, since, 10.0) is not None
    assert not small_stack.runtime.ready()
    small_stack.containers.start(coordinator)
    until(small_stack.runtime.ready, 20)
    assert small_stack.stack.addresses()["coordinator"] == before
    until(lambda: not small_stack.stack.unsteady(), 20)


def test_155_a_coordinator_that_was_paused_is_unsteady_and_then_steady_again(
    small_stack: World,
) -> None:
    """The harness asks for itself, with a deadline, whatever the engine's own checks say."""
    coordinator = small_stack.containers.coordinator()
    small_stack.containers.pause(coordinator)
    try:
        began = time.monotonic()
        assert small_stack.stack.unsteady() != ()
        assert time.monotonic() - began < 15
    finally:
        small_stack.containers.start(coordinator)
    until(lambda: not small_stack.stack.unsteady(), 20)


def test_157_a_port_that_stays_taken_is_named_and_nothing_is_left(
    engine: Any, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every try finds the port taken: the error says which, and what was created goes again."""
    honest = stack.free_ports
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        monkeypatch.setattr(stack, "free_ports", lambda: honest() | {"FLASHML_PORT": port})
        monkeypatch.setattr(stack, "PORT_TRIES", 1)
        with pytest.raises(CannotRun, match=port) as refused:
            stack.Project(run_id, 1, {}).up_on_free_ports()
    assert "\n" not in str(refused.value)
    DockerMachine().undo(Undo("u", run_id, None, "stack_down"))
    assert left(engine, run_id) == []


def test_159_a_line_of_40000_characters_is_one_line_in_the_saved_log(
    engine: Any, run_id: str, tmp_path: Path
) -> None:
    """The engine splits it at 16 KB; the harness joins the parts, and stamps none of them."""
    line = {"seq": 1, "event": "lease_claimed", "mono_ns": 1, "lease_id": "l", "fill": "x" * LONG}
    script = f"import json; print(json.dumps({line!r})); print(json.dumps({{'seq': 2}}))"
    labels = run_labels(run_id) | {"com.docker.compose.service": "worker-1"}
    made = engine.containers.run(HELPER, ["python3", "-c", script], labels=labels, detach=True)
    made.wait(timeout=20)
    DockerMachine().world(RunSpec(run_id, workers=1)).stack.save_logs(tmp_path)
    assert json.loads((tmp_path / "worker-1.log").read_text().splitlines()[0]) == line
    found: Any = sequences(tmp_path)["worker-1"]
    assert (found["numbered"], found["gaps"]) == (2, [])
    told: Any = said(tmp_path)["worker-1"]
    assert [each["lease_id"] for each in told] == ["l"]


@pytest.fixture
def far_away(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A harness whose local time is hours from UTC, and has summer time."""
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("far_away")
def test_161_in_another_time_zone_a_death_has_the_same_monotonic_time(
    yard: Any, tmp_path: Path
) -> None:
    """The engine's stamp of nanoseconds is read as such; all times that are kept say UTC."""
    containers = yard.world.containers
    worker = containers.of_node("worker-2")
    before = time.monotonic_ns()
    containers.kill(worker)
    death = containers.wait_death(worker, before, 10.0)
    containers.start(worker)
    assert death is not None
    assert before <= death.at_ns <= time.monotonic_ns()
    with HistoryWriter(tmp_path / "h.jsonl") as writer:
        writer.append("note", {})
    assert History.load(tmp_path / "h.jsonl").records[0].wall.endswith("+00:00")


def test_161_what_a_process_in_another_time_zone_logs_says_utc() -> None:
    code = (
        "import logging; from flashruntime.service.jsonlog import JsonLines;"
        "print(JsonLines().format(logging.makeLogRecord({'msg': 'm', 'levelname': 'INFO'})))"
    )
    environment = os.environ | {"TZ": "Asia/Kolkata"}
    told = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert json.loads(told.stdout)["ts"].endswith("+00:00")


PLACES = {
    "a volume on a path that the image lacks": ({"VOLUME": "/out:rw"}, "/out/ckpt"),
    "a read-only volume": ({"VOLUME": "/var/lib/flashruntime/checkpoints:ro"}, None),
    "a read-only root": ({}, "/srv/ckpt"),
}


@pytest.mark.parametrize("place", PLACES)
def test_163_a_checkpoint_root_that_cannot_be_written_ends_a_worker_at_its_start(
    engine: Any, run_id: str, place: str
) -> None:
    """Not after training: the one line names the variable, the path and the user."""
    mounts, root = PLACES[place]
    volume = engine.volumes.create(f"{run_id}_v", labels=run_labels(run_id))
    root = root or "/var/lib/flashruntime/checkpoints"
    made = engine.containers.run(
        RUNTIME,
        ["flashruntime", "work"],
        labels=run_labels(run_id),
        user="10001:10001",
        read_only=True,
        network_mode="none",
        environment={
            "FLASHML_CHECKPOINT_ROOT": root,
            "FLASHML_COORDINATOR_URL": "http://127.0.0.1:1",
        },
        volumes=[f"{volume.name}:{mount}" for mount in mounts.values()],
        tmpfs={"/tmp": "mode=1777"},
        detach=True,
    )
    assert made.wait(timeout=MOUNTED_S)["StatusCode"] not in {0, 137}
    told = made.logs().decode()
    assert f"FLASHML_CHECKPOINT_ROOT: {root} is not writable for uid 10001" in told
    assert "Traceback" not in told
