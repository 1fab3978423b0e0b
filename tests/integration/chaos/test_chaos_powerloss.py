"""Power losses with the real runtime: recorded by strace, rebuilt, mounted, resumed from."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from chaos.alive import mark
from chaos.blackout import PROMISED, Choice, Findings, explore
from chaos.faults import power_loss
from chaos.model import Landed, Undo, Verdict
from chaos.targets.machine import DockerMachine

pytestmark = pytest.mark.integration

FEW = Choice(seed=1, limit=12, mounts=2)


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


def explored(run_id: str, what: str, choice: Choice, planted: str | None = None) -> Findings:
    machine = DockerMachine()
    machine.images(planted)
    return explore(machine.disk_images(run_id, planted), what, choice, print)


def in_words(found: Findings) -> list[tuple[Any, Any]]:
    return [(state["how"], state["violations"]) for state in found.bad]


@pytest.mark.parametrize("what", ["checkpoint", "coordinator"])
def test_what_was_answered_survives_a_power_loss_on_real_file_systems(
    run_id: str, what: str
) -> None:
    found = explored(run_id, what, FEW)
    assert in_words(found) == []
    assert found.verdict is Verdict.VALID
    assert (len(found.states), len(found.mounted)) == (12, 2)
    assert len({state["image_sha256"] for state in found.mounted}) == 2


@pytest.mark.parametrize(
    ("planted", "what", "item"),
    [
        ("no_fsync", "checkpoint", "step-000020"),
        ("manifest_first", "checkpoint", "step-000020"),
        pytest.param(
            "no_ledger_sync",
            "coordinator",
            "-new had been answered and is absent",
            marks=pytest.mark.bench_stress,
        ),
    ],
)
def test_a_planted_bug_is_caught(run_id: str, planted: str, what: str, item: str) -> None:
    limit = 40 if what == "checkpoint" else 12
    found = explored(run_id, what, Choice(seed=1, limit=limit, mounts=0), planted)
    assert found.verdict is Verdict.VIOLATED
    assert any(item in str(state["violations"]) for state in found.bad)


@pytest.mark.bench_stress
@pytest.mark.parametrize("what", sorted(PROMISED))
def test_hundreds_of_states_that_a_power_loss_may_leave_are_valid(run_id: str, what: str) -> None:
    found = explored(run_id, what, Choice(seed=2, limit=400, mounts=40))
    assert in_words(found) == []
    assert (len(found.states), len(found.mounted)) == (min(found.known, 400), 40)
    assert found.known > 100


def test_the_fault_lands_with_the_digest_of_an_image_and_misses_where_nothing_was_lost(
    scene: Any,
) -> None:
    aim = scene("power_loss", deadline_s=60.0, what="checkpoint", choice=1, limit=6, mounts=1)
    receipt = power_loss.FAULT.receipt(aim, power_loss.FAULT.fire(aim))
    assert receipt.landed is Landed.LANDED
    images: Any = receipt.evidence["power_lost"]
    assert any(image["lost"] for image in images)
    aim = scene("power_loss", deadline_s=60.0, what="checkpoint", choice=1, limit=1, mounts=0)
    assert power_loss.FAULT.receipt(aim, power_loss.FAULT.fire(aim)).landed is Landed.MISSED


def test_its_undo_removes_what_a_killed_harness_left(yard: Any, scene: Any) -> None:
    aim = scene("power_loss")
    for action, args in power_loss.FAULT.undo(aim):
        aim.promise(action, args)
    labels = {"dev.flashruntime.owner": "flashruntime", "dev.flashruntime.run": yard.run_id}
    left = yard.client.containers.create(
        "flashruntime/helper:local",
        ["sleep", "60"],
        labels=labels | {"dev.flashruntime.role": "power-record"},
    )
    volume = yard.client.volumes.create(f"{yard.run_id}_power-checkpoint", labels=labels)
    left.start()
    aim.undo_now()
    aim.undo_now()
    ours = {"label": f"dev.flashruntime.run={yard.run_id}"}
    assert left.id not in [each.id for each in yard.client.containers.list(all=True, filters=ours)]
    assert volume.name not in [each.name for each in yard.client.volumes.list(filters=ours)]
