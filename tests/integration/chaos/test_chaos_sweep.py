"""Saves in real containers, disturbed by strace at one system call."""

import uuid
from collections.abc import Iterator
from dataclasses import replace

import pytest

from chaos.alive import mark
from chaos.model import Landed, Undo, Verdict
from chaos.ports.syscalls import KILL
from chaos.sweep import boundaries, explore, judged
from chaos.targets.machine import DockerMachine

pytestmark = pytest.mark.integration


@pytest.fixture
def run_id() -> Iterator[str]:
    """A run whose containers and volumes are removed whatever happens."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    alive = mark(name)
    yield name
    machine = DockerMachine()
    machine.undo(Undo("stack", name, None, "stack_down"))
    if alive is not None:
        alive.close()
    assert machine.audit(name).clean


@pytest.mark.parametrize(
    ("what", "how", "limit"),
    [
        ("checkpoint", KILL, 6),
        pytest.param("checkpoint", "EIO", None, marks=pytest.mark.bench_stress),
        pytest.param("checkpoint", KILL, None, marks=pytest.mark.bench_stress),
        pytest.param("commit", KILL, None, marks=pytest.mark.bench_stress),
    ],
)
def test_what_was_answered_survives_each_boundary(
    run_id: str, what: str, how: str, limit: int | None
) -> None:
    syscalls = DockerMachine().syscalls(run_id, None)
    found = explore(syscalls, what, how, limit, print)
    assert [point for point in found.points if point.violations] == []
    assert [point.evidence for point in found.points if point.landed is not Landed.LANDED] == []
    assert found.verdict is Verdict.VALID
    assert len(found.points) == (limit or found.known)


def test_a_call_that_never_comes_is_missed(run_id: str) -> None:
    syscalls = DockerMachine().syscalls(run_id, None)
    first = boundaries(syscalls.save("checkpoint"))[0]
    never = replace(first, nth=10_000, nth_there=10_000)
    saved = syscalls.save("checkpoint", never)
    assert saved.exit_code is None
    assert judged(1, never, KILL, saved).landed is Landed.MISSED
