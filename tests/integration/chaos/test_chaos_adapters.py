"""The adapters on a real engine and a real Toxiproxy."""

import time
from pathlib import Path
from typing import Any

import pytest

from chaos.model import CannotRun, Container, NoTarget, NotOurs, Undo
from chaos.ports import Toxic
from chaos.targets.engine import run_labels

pytestmark = pytest.mark.integration


def test_a_node_is_found_by_its_hostname_and_never_by_a_part_of_it(yard: Any) -> None:
    assert yard.world.containers.of_node("worker-1").service == "worker-1"
    assert yard.world.containers.of_node("worker-2-ab12").service == "worker-2"
    with pytest.raises(NoTarget):
        yard.world.containers.of_node("worker-11")


def test_a_container_of_another_run_is_refused_and_lives(yard: Any, foreign: Any) -> None:
    with pytest.raises(NotOurs):
        yard.world.containers.kill(Container(foreign.id, "worker-1", "another"))
    foreign.reload()
    assert foreign.status == "running"


def test_a_death_is_told_with_exit_code_and_monotonic_time(yard: Any) -> None:
    worker = yard.world.containers.of_node("worker-2")
    before = time.monotonic_ns()
    yard.world.containers.kill(worker)
    death = yard.world.containers.wait_death(worker, before, 5.0)
    assert death is not None
    assert death.exit_code == 137
    assert before < death.at_ns < time.monotonic_ns()
    yard.world.containers.kill(worker)
    yard.world.containers.start(worker)
    yard.world.containers.start(worker)
    assert yard.world.containers.wait_death(worker, time.monotonic_ns(), 0.1) is None


def test_logs_go_by_service_and_a_silent_helper_leaves_none(yard: Any, tmp_path: Path) -> None:
    yard.world.stack._helper.start()
    yard.world.stack.save_logs(tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"coordinator.log", "toxiproxy.log", "worker-1.log", "worker-2.log"}


def test_a_toxic_is_read_back_and_its_removal_may_be_repeated(yard: Any) -> None:
    network = yard.world.network
    toxic = Toxic("t", "latency", "downstream", {"latency": 7})
    network.add("worker-1", toxic)
    network.add("worker-1", toxic)
    (found,) = network.toxics()["worker-1"]
    assert (found.name, found.type, found.attributes["latency"]) == ("t", "latency", 7)
    network.remove("worker-1", "t")
    network.remove("worker-1", "t")
    assert network.toxics() == {}


def test_an_unknown_listener_or_toxic_type_is_an_error_that_names_it(yard: Any) -> None:
    with pytest.raises(CannotRun, match="nobody"):
        yard.world.network.add("nobody", Toxic("t", "latency", "downstream", {}))
    with pytest.raises(CannotRun, match="worker-1"):
        yard.world.network.add("worker-1", Toxic("t", "soup", "downstream", {}))


def test_an_undo_finds_its_target_again_after_a_restart(yard: Any) -> None:
    network = yard.world.network
    network.add("worker-2", Toxic("t", "latency", "downstream", {"latency": 7}))
    undo = Undo("u", yard.run_id, "f", "remove_toxics", {"listener": "worker-2", "names": ["t"]})
    yard.machine.undo(undo)
    yard.machine.undo(undo)
    assert network.toxics() == {}
    worker = yard.world.containers.of_node("worker-2")
    yard.client.api.kill(worker.container_id)
    start = Undo("u", yard.run_id, "f", "start_container", {"service": "worker-2"})
    yard.machine.undo(start)
    yard.machine.undo(start)
    assert yard.client.containers.get(worker.container_id).status == "running"


def test_undos_of_a_run_that_is_gone_are_harmless(yard: Any) -> None:
    for action, args in (
        ("start_container", {"service": "worker-1"}),
        ("remove_toxics", {"listener": "worker-1", "names": ["t"]}),
        ("stack_down", {}),
    ):
        yard.machine.undo(Undo("u", "no-such-run", None, action, args))


def test_the_audit_names_what_a_run_left_and_taking_it_down_leaves_nothing(
    engine: Any, yard: Any
) -> None:
    labels = run_labels("audited")
    engine.networks.create("audited_edge", labels=labels)
    engine.volumes.create("audited_checkpoints", labels=labels)
    assert "audited" in yard.machine.runs()
    audit = yard.machine.audit("audited")
    assert (audit.networks, audit.volumes) == (("audited_edge",), ("audited_checkpoints",))
    yard.machine.undo(Undo("u", "audited", None, "stack_down"))
    assert yard.machine.audit("audited").clean
    assert yard.run_id in yard.machine.runs()


def test_a_paused_container_is_seen_by_the_audit_and_can_be_killed(yard: Any) -> None:
    worker = yard.world.containers.of_node("worker-2")
    yard.client.api.pause(worker.container_id)
    assert len(yard.machine.audit(yard.run_id).paused) == 1
    yard.world.containers.start(worker)
    assert yard.machine.audit(yard.run_id).paused == ()


def test_the_stack_of_make_up_is_never_taken_down_as_a_run(yard: Any) -> None:
    with pytest.raises(CannotRun, match="make down"):
        yard.machine.undo(Undo("u", "stack", None, "stack_down"))
    assert "stack" not in yard.machine.runs()


def test_a_frozen_worker_goes_on_when_it_is_started_and_dies_when_it_is_killed(yard: Any) -> None:
    containers = yard.world.containers
    worker = containers.service("worker-1")
    for _ in range(2):
        containers.pause(worker)
        assert yard.client.containers.get(worker.container_id).status == "paused"
        containers.start(worker)
        assert yard.client.containers.get(worker.container_id).status == "running"
    containers.pause(worker)
    before = time.monotonic_ns()
    containers.kill(worker)
    death = containers.wait_death(worker, before, 5.0)
    assert death is not None
    assert death.exit_code == 137
    containers.start(worker)
