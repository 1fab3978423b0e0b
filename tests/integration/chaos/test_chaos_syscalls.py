"""Faults at the system calls of a process that runs, on a real container and a real tracer."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from chaos.faults import io_error, kill_at_syscall, lost_write, slow_fsync
from chaos.model import Landed, Receipt, Undo
from chaos.ports import Fault
from chaos.targets.engine import ROLE_KEY, by_labels

pytestmark = pytest.mark.integration
WRITER = """
import os, time
while True:
    fd = os.open("/tmp/kept", os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
    try:
        os.write(fd, b"x" * 1000)
        os.fsync(fd)
    except OSError as error:
        open("/tmp/errors", "a").write(f"{error.errno}\\n")
    finally:
        os.close(fd)
    time.sleep(0.02)
"""
FAULTS: list[tuple[Fault, dict[str, Any]]] = [
    (kill_at_syscall.FAULT, {"call": "fsync", "nth": 3}),
    (io_error.FAULT, {"call": "fsync", "errno": "ENOSPC"}),
    (lost_write.FAULT, {"call": "write", "below": "/tmp/"}),
    (slow_fsync.FAULT, {"delay_ms": 200}),
]
EACH = pytest.mark.parametrize(("fault", "params"), FAULTS, ids=[fault.kind for fault, _ in FAULTS])


def fire(fault: Fault, scene: Any) -> Receipt:
    for action, args in fault.undo(scene):
        scene.promise(action, args)
    return fault.receipt(scene, fault.fire(scene))


def tracers(engine: Any, run_id: str) -> list[str]:
    found = engine.containers.list(all=True, filters=by_labels(run_id), ignore_removed=True)
    roles = [str(each.labels.get(ROLE_KEY, "")) for each in found]
    return [role for role in roles if role.startswith("tracer-")]


@pytest.fixture
def writer(yard: Any) -> Iterator[Any]:
    """A process of worker-1 that writes and syncs all the time."""
    worker = yard.client.containers.get(yard.world.containers.of_node("worker-1").container_id)
    worker.exec_run(["rm", "-f", "/tmp/errors"])
    worker.exec_run(["python3", "-c", WRITER], detach=True)
    deadline = time.monotonic() + 5
    while worker.exec_run(["test", "-e", "/tmp/kept"]).exit_code:
        assert time.monotonic() < deadline
    yield worker
    worker.exec_run(["pkill", "-f", "os.fsync"])


@EACH
def test_it_lands_at_a_process_that_makes_the_call(
    fault: Fault, params: dict[str, Any], scene: Callable[..., Any], writer: Any, yard: Any
) -> None:
    receipt = fire(fault, scene(fault.kind, 30.0, hold_ms=2000, **params))
    assert receipt.landed is Landed.LANDED, receipt.evidence
    assert tracers(yard.client, yard.run_id) == []
    alive = writer.exec_run(["pgrep", "-f", "os.fsync"]).exit_code == 0
    assert alive is (fault.kind != "kill_at_syscall")
    if fault.kind == "io_error":
        errors = writer.exec_run(["cat", "/tmp/errors"]).output.decode().split()
        assert set(errors) == {"28"}, "the process itself saw ENOSPC"


@EACH
def test_it_misses_a_process_that_never_makes_the_call(
    fault: Fault, params: dict[str, Any], scene: Callable[..., Any], yard: Any
) -> None:
    receipt = fire(fault, scene(fault.kind, 30.0, hold_ms=600, **params))
    assert receipt.landed is Landed.MISSED, receipt.evidence
    assert tracers(yard.client, yard.run_id) == []


@EACH
def test_its_undo_works_after_a_restart_of_its_target_and_twice(
    fault: Fault, params: dict[str, Any], scene: Callable[..., Any], writer: Any, yard: Any
) -> None:
    aim = scene(fault.kind, 30.0, hold_ms=0, **params)
    undos = [
        Undo(f"u{number}", yard.run_id, "f", action, args)
        for number, (action, args) in enumerate(fault.undo(aim))
    ]
    container = aim.aim.container
    yard.world.tracers.attach(container, "f", fault.injection(aim.action.params), inner=True)  # type: ignore[attr-defined]
    assert tracers(yard.client, yard.run_id) == ["tracer-f"]
    writer.restart(timeout=1)
    for undo in (*undos, *undos):
        yard.machine.undo(undo)
    assert tracers(yard.client, yard.run_id) == []
    assert yard.world.processes.state(container).running
