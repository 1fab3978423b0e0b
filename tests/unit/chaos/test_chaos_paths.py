"""Faults on paths and packets, on the twins: landed when they bite, missed when they cannot."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from chaos import registry
from chaos.faults import lost_answer, partition, toxiproxy_down
from chaos.history import History, Record
from chaos.model import (
    Action,
    Container,
    JobView,
    JsonMap,
    JsonValue,
    Landed,
    NoTarget,
    Observation,
    Receipt,
    Target,
    TaskView,
    Trigger,
    Verdict,
)
from chaos.ports import Line, RunSpec, World
from chaos.stage import resolvable, resolve
from chaos.testing import FakeLogs, FakeMachine, FakeNetwork, FakePackets, FakeSystem

TASK, LEASE, COMMITTED = "job-1-00000", "lease-1", "TASK_COMMIT_ACCEPTED"


@dataclass
class Stage:
    """A scene in which waiting takes no time: it lets `coming` happen."""

    action: Action
    world: World
    aim: Target
    seen: Observation = field(default_factory=Observation)
    coming: Callable[[], None] = lambda: None
    notes: list[str] = field(default_factory=list)
    waits: int = 100

    def target(self) -> Target:
        return self.aim

    def observation(self) -> Observation:
        return self.seen

    def wait(self, condition: Callable[[Observation], bool], timeout_s: float) -> bool:
        del timeout_s
        self.waits -= 1
        self.coming()
        return condition(self.seen)

    def remaining_s(self) -> float:
        return 1.0 if self.waits > 0 else 0.0

    def promise(self, action: str, args: JsonMap) -> None: ...

    def undo_now(self) -> None: ...

    def note(self, text: str, data: JsonMap) -> None:
        del data
        self.notes.append(text)

    def happen(self, kind: str, lease_id: str = LEASE, node_id: str = "worker-1") -> None:
        """Let an event be seen."""
        event: JsonMap = {
            "type": kind,
            "task_id": TASK,
            "lease_id": lease_id,
            "mono_ns": time.monotonic_ns(),
            "data": {"node_id": node_id},
        }
        self.seen = replace(self.seen, events=(*self.seen.events, event))


@pytest.fixture
def stage() -> Callable[..., Stage]:
    """Return a maker of scenes that aim at worker-1, which holds the task of main."""

    def make(kind: str, **params: Any) -> Stage:
        world = FakeMachine().world(RunSpec("run-1", workers=2))
        container = Container("id-worker-1", "worker-1", "run-1")
        aim = Target("holder of main", container, "worker-1", "worker-1", "job-1", TASK, LEASE, 1)
        scene = Stage(Action("f", kind, "holder of main", Trigger(), 5.0, params), world, aim)
        scene.happen("LEASE_CLAIMED")
        job = JobView("main", "job-1", "RUNNING", TaskView(TASK, "LEASED", "worker-1", LEASE, 1))
        scene.seen = replace(scene.seen, jobs={"main": job})
        return scene

    return make


def fire(scene: Stage) -> Receipt:
    """Do as the controller does."""
    fault: Any = registry.faults()[scene.action.kind]
    assert fault.undo(scene)
    receipt: Receipt = fault.receipt(scene, fault.fire(scene))
    return receipt


def network(scene: Stage) -> FakeNetwork:
    assert isinstance(scene.world.network, FakeNetwork)
    return scene.world.network


def packets(scene: Stage) -> FakePackets:
    assert isinstance(scene.world.packets, FakePackets)
    return scene.world.packets


TOXICS: dict[str, dict[str, Any]] = {
    "latency": {"latency_ms": 300, "jitter_ms": 50, "stream": "both"},
    "bandwidth": {"kb_per_s": 150},
    "slicer": {"slice_bytes": 20, "pause_us": 20_000},
    "timeout": {"stream": "upstream"},
    "reset_peer": {},
}
RULES: dict[str, dict[str, Any]] = {
    "one_way_partition": {"flow": "in"},
    "loss": {"percent": 30},
}


@pytest.mark.parametrize(("kind", "params"), TOXICS.items())
def test_a_toxic_lands_by_its_canaries_or_is_missed(
    stage: Callable[..., Stage], kind: str, params: dict[str, Any]
) -> None:
    """It is switched on both times; only the canary tells whether it bites. None is left on."""
    scene, spared = stage(kind, **params), stage(kind, **params)
    network(spared).is_deaf = True
    receipts = fire(scene), fire(spared)
    assert [each.landed for each in receipts] == [Landed.LANDED, Landed.MISSED]
    assert receipts[0].evidence["read_back"]
    assert scene.world.network.toxics() == spared.world.network.toxics() == {}


@pytest.mark.parametrize(("kind", "params"), RULES.items())
def test_a_packet_rule_lands_by_its_counters_and_canaries_or_is_missed(
    stage: Callable[..., Stage], kind: str, params: dict[str, Any]
) -> None:
    scene, spared = stage(kind, **params), stage(kind, **params)
    packets(spared).is_deaf = True
    assert [fire(scene).landed, fire(spared).landed] == [Landed.LANDED, Landed.MISSED]
    assert packets(scene).rules == {}


@pytest.mark.parametrize("kind", ["latency", "loss", "one_way_partition"])
def test_without_a_way_through_before_it_nothing_can_be_said(
    stage: Callable[..., Stage], kind: str
) -> None:
    scene = stage(kind, **{**TOXICS, **RULES}[kind])
    network(scene).closed.add("worker-1")
    packets(scene).alone.add("worker-1")
    assert fire(scene).landed is Landed.INCONCLUSIVE


def test_a_closed_listener_lands_and_is_open_again(stage: Callable[..., Stage]) -> None:
    scene = stage("down")
    assert fire(scene).landed is Landed.LANDED
    assert network(scene).closed == set()


def test_a_fault_that_comes_after_the_event_it_was_to_be_ahead_of_is_missed(
    stage: Callable[..., Stage],
) -> None:
    ahead, late = (stage("timeout", ahead_of=COMMITTED) for _ in range(2))
    ahead.coming = lambda: ahead.happen(COMMITTED)
    late.happen(COMMITTED)
    assert [fire(ahead).landed, fire(late).landed] == [Landed.LANDED, Landed.MISSED]


def test_it_is_held_through_the_checkpoints_and_until_the_event_that_are_named(
    stage: Callable[..., Stage],
) -> None:
    scene = stage("timeout", through_checkpoints=3, until=COMMITTED)
    met: list[int] = []

    def coming() -> None:
        met.append(scene.seen.jobs["main"].checkpoints)
        job = replace(scene.seen.jobs["main"], checkpoints=3)
        scene.seen = replace(scene.seen, jobs={"main": job})
        if len(met) == 3:
            scene.happen(COMMITTED)

    scene.coming = coming
    assert fire(scene).evidence["met"] == COMMITTED
    assert met[0] == 0


@pytest.mark.parametrize(
    ("claimed_by", "landed"),
    [("worker-2", Landed.LANDED), ("worker-1", Landed.MISSED), (None, Landed.MISSED)],
)
def test_a_partition_lands_when_another_node_claims_meanwhile(
    stage: Callable[..., Stage], claimed_by: str | None, landed: Landed
) -> None:
    scene = stage("partition", min_hold_ms=1)

    def coming() -> None:
        if claimed_by and len(scene.seen.events) == 1:
            scene.happen("LEASE_CLAIMED", "lease-2", claimed_by)

    scene.coming = coming
    receipt = fire(scene)
    assert (receipt.landed, receipt.lost_lease_id) == (landed, LEASE)
    assert packets(scene).alone == set()


def test_a_worker_without_a_network_is_not_taken_out_of_one(stage: Callable[..., Stage]) -> None:
    scene = stage("partition")
    packets(scene).alone.add("worker-1")
    with pytest.raises(NoTarget, match="in no network"):
        partition.FAULT.undo(scene)


def proxied(scene: Stage, *, listeners_back: bool = True) -> Stage:
    """Aim at Toxiproxy, whose network is up while its container is."""
    system = scene.world.containers
    assert isinstance(system, FakeSystem)
    network(scene).is_up = lambda: "toxiproxy" not in system.down
    scene.aim = Target("toxiproxy", container=system.proxy())
    if not listeners_back:
        scene.coming = lambda: network(scene).closed.add("worker-1")
    return scene


def test_a_dead_toxiproxy_lands_when_it_is_back_with_its_listeners(
    stage: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was switched on there is told; the time without a path is marked in the history."""
    monkeypatch.setattr(toxiproxy_down, "UP_TIMEOUT_S", 0.0)
    scene = proxied(stage("toxiproxy_down"))
    monkeypatch.setattr(toxiproxy_down, "UP_TIMEOUT_S", 1.0)
    assert fire(scene).landed is Landed.LANDED
    assert scene.notes == ["no path to the coordinator"]
    monkeypatch.setattr(toxiproxy_down, "UP_TIMEOUT_S", 0.01)
    assert fire(proxied(stage("toxiproxy_down"), listeners_back=False)).landed is Landed.MISSED


def test_toxiproxy_is_a_target_of_its_own(stage: Callable[..., Stage]) -> None:
    world, seen = stage("toxiproxy_down").world, Observation()
    assert resolvable("toxiproxy", seen)
    found = resolve("toxiproxy", seen, world, "run-1")
    assert found.container is not None
    assert (found.container.service, found.listener) == ("toxiproxy", None)


def answering(scene: Stage, event: str, lease_id: str, *, told: bool = True) -> Stage:
    """Let the coordinator act at the first wait, and the worker tell of its answer later."""
    logs = scene.world.logs
    assert isinstance(logs, FakeLogs)

    def coming() -> None:
        if len(scene.seen.events) == 1:
            scene.happen(event, lease_id)
        elif told:
            heard = "lease_claimed" if event == "LEASE_CLAIMED" else "attempt_accepted"
            fields: JsonMap = {"event": heard, "lease_id": lease_id}
            logs.lines["worker-1"] = [Line(time.monotonic_ns(), fields)]

    scene.coming = coming
    return scene


@pytest.mark.parametrize(
    ("call", "event", "lease_id"),
    [("claim", "LEASE_CLAIMED", "lease-2"), ("complete", COMMITTED, LEASE)],
)
def test_an_answer_is_lost_where_the_caller_hears_it_only_after_the_cut(
    stage: Callable[..., Stage],
    monkeypatch: pytest.MonkeyPatch,
    call: str,
    event: str,
    lease_id: str,
) -> None:
    """Missed: nothing was carried out, or the delay was over. Without a word: inconclusive."""
    monkeypatch.setattr(lost_answer, "HEARING_S", 0.0)
    scene = answering(stage("lost_answer", call=call), event, lease_id)
    fault = lost_answer.FAULT
    fired = fault.fire(scene)
    scene.coming()
    receipt = fault.receipt(scene, fired)
    assert receipt.landed is Landed.LANDED
    assert receipt.evidence["arrived_lease_id"] == lease_id
    late = {**fired, "arrived_ns": int(str(fired["cut_ns"])) - 10**10}
    assert fault.receipt(scene, late).landed is Landed.MISSED
    assert fire(stage("lost_answer", call=call)).landed is Landed.MISSED
    silent = answering(stage("lost_answer", call=call), event, lease_id, told=False)
    assert fire(silent).landed is Landed.INCONCLUSIVE


def test_an_answer_that_was_heard_before_the_cut_was_not_lost(
    stage: Callable[..., Stage],
) -> None:
    scene = answering(stage("lost_answer", call="complete"), COMMITTED, LEASE)
    fired = lost_answer.FAULT.fire(scene)
    scene.coming()
    now_ns = time.monotonic_ns()
    early = {**fired, "arrived_ns": now_ns, "cutting_ns": now_ns, "cut_ns": now_ns}
    assert lost_answer.FAULT.receipt(scene, early).landed is Landed.MISSED


@pytest.mark.parametrize(("requests", "landed"), [(2, Landed.LANDED), (1, Landed.INCONCLUSIVE)])
def test_the_answer_to_a_submission_is_lost_where_the_coordinator_is_asked_twice(
    stage: Callable[..., Stage],
    monkeypatch: pytest.MonkeyPatch,
    requests: int,
    landed: Landed,
) -> None:
    """By the proxy: who has a way of its own does not count."""
    monkeypatch.setattr(lost_answer, "HEARING_S", 0.0)
    scene = stage("lost_answer", call="submit")
    logs, system = scene.world.logs, scene.world.runtime
    assert isinstance(logs, FakeLogs)
    assert isinstance(system, FakeSystem)

    def coming() -> None:
        if not system.jobs:
            system.submit("late", registry.workload("digits").jobs(1, 1)["main"])
        fields: JsonMap = {"event": "request", "method": "POST", "route": "/v1alpha1/jobs"}
        proxied, direct = ({**fields, "client": peer} for peer in ("10.0.0.2", "10.0.0.1"))
        now_ns = time.monotonic_ns()
        logs.lines["coordinator"] = [Line(now_ns, direct)] + [Line(now_ns, proxied)] * requests

    scene.coming = coming
    receipt = fire(scene)
    assert receipt.landed is landed
    assert (receipt.evidence["listener"], receipt.evidence["accepted"]) == (
        "clients",
        ["job-000000000000"],
    )


@pytest.mark.parametrize(
    ("accepted", "verdict"),
    [(["job-a", "job-b"], Verdict.VALID), (["job-a", "job-b", "job-c"], Verdict.VIOLATED)],
)
def test_a_second_job_of_one_submission_is_found(
    accepted: list[JsonValue], verdict: Verdict
) -> None:
    """Only what was heard of counts as submitted; without a lost answer nothing can be said."""
    records = [
        record("job_submitted", {"job_id": "job-a"}),
        record("job_submitted", {"job_id": "job-b"}),
        record("fault_receipt", {"kind": "kill", "evidence": {}}),
    ]
    (once,) = registry.invariants(["submitted_once"])
    assert once.judge(History(tuple(records)))[0] is Verdict.UNKNOWN
    evidence: JsonMap = {"call": "submit", "accepted": accepted}
    records.append(record("fault_receipt", {"kind": "lost_answer", "evidence": dict(evidence)}))
    assert once.judge(History(tuple(records)))[0] is verdict


def record(kind: str, data: dict[str, Any]) -> Record:
    return Record(0, 1, "boot", "2026", "test", kind, data)
