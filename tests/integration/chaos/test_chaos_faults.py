"""Each fault on real containers: landed when it bites, missed when it cannot, undone by label."""

import hashlib
import json
import time
from dataclasses import replace
from typing import Any

import pytest

from chaos.faults import black_hole, flip_bits, kill, kill_in_write_window, latency, reset
from chaos.model import JobView, Landed, TaskView
from chaos.ports import Toxic

pytestmark = pytest.mark.integration

TASK = "job-000000000001-00000"
LEASE = "lease-1"
ROOT = f"/touch/job-000000000001/{TASK}"


def fire(fault: Any, scene: Any) -> Any:
    """Do as the controller does: promise, fire, ask for the receipt."""
    for action, args in fault.undo(scene):
        scene.promise(action, args)
    return fault.receipt(scene, fault.fire(scene))


def claim(lease_id: str, node_id: str) -> dict[str, Any]:
    return {
        "type": "LEASE_CLAIMED",
        "task_id": TASK,
        "lease_id": lease_id,
        "mono_ns": time.monotonic_ns(),
        "data": {"node_id": node_id},
    }


def in_helper(yard: Any, code: str) -> None:
    """Run Python in the helper container, as the user that owns the checkpoints."""
    yard.world.stack._helper.start()
    helper = yard.client.containers.list(filters={"label": f"dev.flashruntime.run={yard.run_id}"})
    (found,) = [c for c in helper if c.labels.get("dev.flashruntime.role") == "helper"]
    done = found.exec_run(["python3", "-c", code])
    assert done.exit_code == 0, done.output


def put_checkpoint(yard: Any, step: int, size_bytes: int = 4096) -> None:
    """Put a committed checkpoint on the volume, sealed the way the runtime seals it."""
    data = bytes(size_bytes)
    part = {"key": "state-0", "sha256": hashlib.sha256(data).hexdigest(), "size_bytes": size_bytes}
    content = {"step": step, "attempt_id": LEASE, "manifest_id": f"ckpt-{step}", "parts": [part]}
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    content["digest"] = hashlib.sha256(canonical.encode()).hexdigest()
    in_helper(
        yard,
        f"import pathlib; d = pathlib.Path({ROOT!r}) / 'step-{step:06}'; d.mkdir(parents=True, "
        f"exist_ok=True); (d / 'state-0').write_bytes(bytes({size_bytes})); "
        f"(d / 'manifest.json').write_text({json.dumps(content)!r})",
    )


def stage(yard: Any, step: int, *, manifest: bool = False, attempt: str = LEASE) -> None:
    """Put a save in progress on the volume."""
    name = "manifest.json" if manifest else "state-0"
    in_helper(
        yard,
        f"import pathlib; d = pathlib.Path({ROOT + '/.staging/' + attempt!r}, 'step-{step:06}'); "
        f"d.mkdir(parents=True, exist_ok=True); (d / {name!r}).write_bytes(b'bytes')",
    )


@pytest.fixture(autouse=True)
def as_before(yard: Any) -> Any:
    """Every test finds both workers running and an empty tree."""
    yield
    for service in ("worker-1", "worker-2"):
        yard.world.containers.start(yard.world.containers.service(service))
    in_helper(yard, f"import shutil; shutil.rmtree({ROOT!r}, ignore_errors=True)")


def test_kill_lands_and_its_undo_starts_the_container_again(yard: Any, scene: Any) -> None:
    aim = scene("kill", signal="SIGKILL")
    receipt = fire(kill.FAULT, aim)
    assert (receipt.landed, receipt.lost_lease_id) == (Landed.LANDED, LEASE)
    assert receipt.evidence["exit_code"] == 137
    aim.undo_now()
    container = yard.client.containers.get(aim.aim.container.container_id)
    assert container.status == "running"


def test_a_signal_that_ends_nothing_is_missed(yard: Any, scene: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(kill, "DEATH_TIMEOUT_S", 0.3)
    receipt = fire(kill.FAULT, scene("kill", signal="SIGCONT"))
    assert (receipt.landed, receipt.lost_lease_id) == (Landed.MISSED, None)


def test_a_kill_in_the_write_window_lands_on_parts_without_a_manifest(
    yard: Any, scene: Any
) -> None:
    stage(yard, 20)
    receipt = fire(kill_in_write_window.FAULT, scene("kill_in_write_window", min_step=15))
    assert (receipt.landed, receipt.lost_lease_id) == (Landed.LANDED, LEASE)
    assert receipt.evidence["left"] == {
        "parts": {"state-0": 5},
        "manifest": False,
        "committed": False,
    }


def test_without_a_window_the_kill_is_missed_and_nobody_dies(yard: Any, scene: Any) -> None:
    stage(yard, 10)
    stage(yard, 20)
    stage(yard, 20, manifest=True)
    aim = scene("kill_in_write_window", deadline_s=0.5, min_step=15)
    receipt = fire(kill_in_write_window.FAULT, aim)
    assert (receipt.landed, receipt.lost_lease_id) == (Landed.MISSED, None)
    container = yard.client.containers.get(aim.aim.container.container_id)
    assert container.status == "running"


def test_a_kill_that_came_too_late_heals_and_tries_the_next_save(
    yard: Any, scene: Any, monkeypatch: Any
) -> None:
    """The first save is committed before its writer dies; the next holder is hit in its own."""
    stage(yard, 20)
    aim = scene("kill_in_write_window", deadline_s=20.0, min_step=15)
    files, other = yard.world.files, yard.world.containers.of_node("worker-2")
    honest = files.staged_parts

    def committed_once(*words: Any) -> Any:
        monkeypatch.setattr(files, "staged_parts", honest)
        stage(yard, 30, attempt="lease-2")
        task = TaskView(TASK, "LEASED", "worker-2", "lease-2", 2)
        aim.seen = replace(aim.seen, jobs={"main": JobView("main", "j", "RUNNING", task)})
        aim.aim = replace(aim.aim, container=other, lease_id="lease-2")
        return {**honest(*words), "manifest": True, "committed": True}

    monkeypatch.setattr(files, "staged_parts", committed_once)
    receipt = fire(kill_in_write_window.FAULT, aim)
    assert (receipt.landed, receipt.evidence["tries"]) == (Landed.LANDED, 2)
    assert (receipt.lost_lease_id, receipt.evidence["step"]) == ("lease-2", 30)
    first = yard.world.containers.service("worker-1")
    assert yard.client.containers.get(first.container_id).status == "running"


def test_a_flipped_bit_lands_only_before_the_next_claim(yard: Any, scene: Any) -> None:
    """It flips under a frozen worker, which is dead before anybody can claim."""
    put_checkpoint(yard, 10)
    put_checkpoint(yard, 20)
    early = scene("flip_bits", choice=7)
    early.coming = lambda: [claim("lease-2", "worker-2")]
    receipt = fire(flip_bits.FAULT, early)
    assert (receipt.landed, receipt.lost_lease_id) == (Landed.LANDED, LEASE)
    assert receipt.evidence["exit_code"] == 137
    assert receipt.evidence["at_ns"] < receipt.evidence["died_ns"]
    early.undo_now()
    states = {c.step: c.state for c in yard.world.files.tree("job-000000000001", TASK).checkpoints}
    assert states == {10: "valid", 20: "corrupt"}
    late = scene("flip_bits", choice=7)
    late.seen = late.seen.__class__(events=(claim(LEASE, "worker-1"), claim("lease-2", "worker-2")))
    late.coming = list
    assert fire(flip_bits.FAULT, late).landed is Landed.MISSED


def test_latency_lands_by_its_canaries_and_leaves_no_toxic(yard: Any, scene: Any) -> None:
    receipt = fire(latency.FAULT, scene("latency", latency_ms=200, hold_ms=10))
    assert receipt.landed is Landed.LANDED
    assert yard.world.network.toxics() == {}


def test_latency_that_nobody_feels_is_missed(yard: Any, scene: Any, monkeypatch: Any) -> None:
    """A toxic that was switched on is no fault that landed: only the canary tells."""
    network = yard.world.network

    def toothless(listener: str, toxic: Toxic) -> None:
        type(network).add(
            network, listener, Toxic(toxic.name, toxic.type, "upstream", {"latency": 0})
        )

    monkeypatch.setattr(network, "add", toothless)
    receipt = fire(latency.FAULT, scene("latency", latency_ms=200, hold_ms=10))
    assert receipt.landed is Landed.MISSED


def test_a_black_hole_lands_when_another_node_claims_while_it_is_closed(
    yard: Any, scene: Any
) -> None:
    aim = scene("black_hole", min_hold_ms=600)
    claims = iter([[], [claim("lease-2", "worker-2")]])
    aim.coming = lambda: [claim("lease-2", "worker-2")] if next(claims, None) else []
    receipt = fire(black_hole.FAULT, aim)
    assert (receipt.landed, receipt.lost_lease_id) == (Landed.LANDED, LEASE)
    assert yard.world.network.probe("worker-1", 0.3).outcome == "timeout"
    assert yard.world.network.probe("worker-2", 1.0).outcome == "ok"
    aim.undo_now()
    assert yard.world.network.probe("worker-1", 1.0).outcome == "ok"


def test_a_black_hole_that_nobody_notices_is_missed(yard: Any, scene: Any) -> None:
    aim = scene("black_hole", deadline_s=0.3, min_hold_ms=0)
    assert fire(black_hole.FAULT, aim).landed is Landed.MISSED
    aim.undo_now()
    assert yard.world.network.toxics() == {}


@pytest.mark.parametrize(
    ("returns", "landed"), [(True, Landed.LANDED), (False, Landed.MISSED)], ids=["back", "away"]
)
def test_a_reset_lands_when_the_one_that_was_cut_off_comes_back(
    yard: Any, scene: Any, monkeypatch: Any, returns: bool, landed: Landed
) -> None:
    monkeypatch.setattr(reset, "RETURN_TIMEOUT_S", 0.3)
    network = yard.world.network
    network.add("worker-1", Toxic("hole", "timeout", "upstream", {"timeout": 0}))
    aim = scene("reset", hold_ms=50)
    aim.seen = aim.seen.__class__(events=(claim(LEASE, "worker-1"), claim("lease-2", "worker-2")))
    refused = {"type": "LEASE_REFUSED", "task_id": TASK, "lease_id": LEASE}
    aim.coming = lambda: [{**refused, "mono_ns": time.monotonic_ns()}] if returns else []
    receipt = fire(reset.FAULT, aim)
    assert receipt.landed is landed
    assert receipt.evidence["during"] == "reset"
    assert network.toxics() == {}


def test_a_network_fault_is_undone_after_its_target_restarted(yard: Any, scene: Any) -> None:
    aim = scene("black_hole", deadline_s=0.1, min_hold_ms=0)
    fire(black_hole.FAULT, aim)
    container_id = aim.aim.container.container_id
    yard.client.api.kill(container_id)
    yard.client.api.start(container_id)
    aim.undo_now()
    assert yard.world.network.toxics() == {}


def test_a_toxiproxy_that_restarted_has_its_listeners_and_no_toxic(yard: Any, scene: Any) -> None:
    """Its state is in memory: after a restart there is nothing left to undo, and undo says so."""
    aim = scene("black_hole", deadline_s=0.1, min_hold_ms=0)
    fire(black_hole.FAULT, aim)
    toxiproxy = yard.world.containers.service("toxiproxy")
    yard.client.containers.get(toxiproxy.container_id).restart(timeout=1)
    aim.undo_now()
    assert yard.machine.audit(yard.run_id).toxics == ()


def test_a_toxiproxy_that_is_down_has_nothing_to_undo(yard: Any, scene: Any) -> None:
    """After the engine itself was restarted nothing of a run runs; heal must not fail on that."""
    stage = scene("black_hole")
    for action, args in black_hole.FAULT.undo(stage):
        stage.promise(action, args)
    container = yard.world.containers.service("toxiproxy").container_id
    toxiproxy = yard.client.containers.get(container)
    toxiproxy.stop(timeout=1)
    try:
        stage.undo_now()
    finally:
        toxiproxy.start()
