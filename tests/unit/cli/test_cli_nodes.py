"""Nodes on the command line: what tasks need of them, how they look, and orders to them."""

from argparse import ArgumentParser
from datetime import UTC, datetime
from typing import Self

import pytest

from flashruntime.cli import common, drain, main, nodes, submit, work
from flashruntime.cli.command import job_spec
from flashruntime.errors import InvalidInput
from flashruntime.protocol.nodes import NodeDuty, NodeOrder, NodeRecord
from flashruntime.protocol.placement import NodeCapabilities, PlacedParameters, Resources

URL = ("--coordinator", "http://127.0.0.1:1")


def asked(*needs: str) -> PlacedParameters:
    parser = ArgumentParser()
    submit.add_arguments(parser)
    args = parser.parse_args(["true", *(word for need in needs for word in ("--need", need))])
    return job_spec(args, ["true"], []).spec.workload.parameters


def test_needs_reach_the_spec_with_their_units() -> None:
    found = asked("cpus=1.5", "memory=4G", "accelerators=2", "label.zone=eu-1", "label.a/b=")
    assert found.resources == Resources(cpus=1.5, memory_bytes=4 * 2**30, accelerators=2)
    assert found.node_selector == {"zone": "eu-1", "a/b": ""}
    assert asked("memory=512").resources.memory_bytes == 512
    assert asked("memory=1.5KiB").resources.memory_bytes == 1536


@pytest.mark.parametrize(
    "need",
    ["gpu=1", "cpus=many", "cpus=1G", "accelerators=1.5", "cpus=-1", "memory", "memory=4X",
     "label.z one=x", "label.zone=a b", "cpus=9999"],
)  # fmt: skip
def test_a_wrong_need_is_refused_by_name(need: str) -> None:
    with pytest.raises(InvalidInput, match="--need"):
        asked(need)


def record(duty: NodeDuty = NodeDuty.ACTIVE, running: int = 0) -> NodeRecord:
    has = NodeCapabilities(
        slots=2, cpus=4, memory_bytes=8 * 10**9, labels={"zone": "eu", "disk": "ssd"}
    )
    return NodeRecord(
        node_id="w1",
        session_id="s",
        status="live",
        registered_at=datetime(2026, 1, 1, tzinfo=UTC),
        idle_s=3,
        duty=duty,
        running=running,
        capabilities=has,
    )


class Coordinator:
    """Gives its answers one after the other, the last one again and again."""

    def __init__(self, *answers: NodeRecord) -> None:
        self.answers = list(answers)
        self.orders: list[tuple[str, NodeOrder]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def nodes(self) -> list[NodeRecord]:
        return [self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]]

    def order_node(self, node_id: str, order: NodeOrder) -> NodeRecord:
        self.orders.append((node_id, order))
        return self.answers[0]


def answer(monkeypatch: pytest.MonkeyPatch, coordinator: Coordinator) -> None:
    for module in (nodes, drain, common):
        monkeypatch.setattr(module, "connect", lambda *_: coordinator)
    monkeypatch.setattr("flashruntime.cli.orders.connect", lambda *_: coordinator)


def test_nodes_show_what_they_are_to_do_run_and_offer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer(monkeypatch, Coordinator(record(NodeDuty.CORDONED, 1)))
    assert main(["nodes", *URL]) == 0
    row = capsys.readouterr().out.splitlines()[1].split()
    assert row == [
        "w1", "live", "cordoned", "1/2", "4", "8.0", "GB", "0", "3s", "disk=ssd,zone=eu",
    ]  # fmt: skip


@pytest.mark.parametrize("verb", ["cordon", "uncordon", "drain"])
def test_an_order_goes_to_each_node(monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    coordinator = Coordinator(record())
    answer(monkeypatch, coordinator)
    assert main([verb, "w1", "w2", *URL]) == 0
    assert coordinator.orders == [("w1", NodeOrder(verb)), ("w2", NodeOrder(verb))]


def test_a_drain_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(drain, "LOOK_S", 0.001)
    busy = record(NodeDuty.DRAINING, 1)
    answer(monkeypatch, Coordinator(busy, busy, record(NodeDuty.DRAINED)))
    assert main(["drain", "w1", "--wait", *URL]) == 0
    assert capsys.readouterr().out == "w1  draining\nw1  drained\n"
    answer(monkeypatch, Coordinator(busy))
    assert main(["drain", "w1", "--wait", "--timeout", "0.01", *URL]) == 1
    assert "still running tasks: w1" in capsys.readouterr().err


def test_what_the_command_line_gives_to_a_worker_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLASHML_SLOTS", "2")
    monkeypatch.setenv("FLASHML_LABELS", "zone=eu,disk=ssd")
    parser = ArgumentParser()
    work.add_arguments(parser)
    args = parser.parse_args(["--slots", "3", "--label", "zone=us"])
    settings = work._settings(args)
    assert (settings.slots, settings.labels) == (3, {"zone": "us", "disk": "ssd"})
    assert work._settings(parser.parse_args([])).slots == 2
