"""Tasks by what their nodes offer, and nodes that are to take none."""

from contextlib import suppress
from typing import Any

import pytest

from flashruntime.errors import NotFound
from flashruntime.leases.record import Submission
from flashruntime.protocol.jobs import JobSpec
from flashruntime.protocol.nodes import NodeDuty, NodeHeartbeat, NodeOrder, NodeRegistration
from flashruntime.protocol.tasks import ClaimRequest, HeartbeatRequest, TaskPayload


def submit(world: Any, job_id: str, tasks: int = 1, **asks: Any) -> None:
    body = {
        "apiVersion": "flashml.dev/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "n"},
        "spec": {"workload": {"type": "command", "parameters": {"command": ["true"], **asks}}},
    }
    payload = TaskPayload(type="command", command=["true"])
    spec = JobSpec.model_validate(body)
    world.manager.submit(Submission(job_id, spec, (payload,) * tasks, 10.0, None, "d"))


def register(world: Any, node_id: str, **has: Any) -> None:
    world.manager.register_node(NodeRegistration(node_id=node_id, capabilities=has))


def claimed(world: Any, node_id: str, **more: Any) -> str | None:
    lease = world.manager.claim(ClaimRequest(node_id=node_id, **more))
    return None if lease is None else lease.job_id


def order(world: Any, node_id: str, what: NodeOrder) -> NodeDuty:
    return NodeDuty(world.manager.order_node(node_id, what).duty)


def node_events(world: Any) -> list[str]:
    return [kind for kind in world.kinds() if kind.startswith("NODE")]


GPU = {"resources": {"accelerators": 1}}


def test_a_head_of_the_queue_that_does_not_fit_is_passed_over_and_kept(world: Any) -> None:
    submit(world, "gpu", tasks=50, **GPU)
    submit(world, "any", tasks=2)
    register(world, "small", cpus=2)
    register(world, "big", cpus=2, accelerators=1)
    assert [claimed(world, "small") for _ in range(3)] == ["any", "any", None]
    assert claimed(world, "big") == "gpu"
    assert claimed(world, "big", free={"cpus": 2}) is None, "its accelerator is in use"
    assert claimed(world, "nobody") is None, "what is not declared is not there"


def test_among_tasks_that_fit_the_oldest_comes_first(world: Any) -> None:
    register(world, "big", cpus=8)
    for name, cpus in (("a", 2), ("b", 0), ("c", 1)):
        submit(world, name, resources={"cpus": cpus})
    assert [claimed(world, "big") for _ in range(3)] == ["a", "b", "c"]


def test_a_waiting_task_keeps_what_it_asks_for(world: Any, policies: Any) -> None:
    register(world, "big", accelerators=1)
    submit(world, "gpu", **GPU)
    lease = world.claim("big")
    world.fail(lease, policies.retry(5.0))
    world.time.advance(11)
    assert claimed(world, "small") is None
    assert claimed(world, "big") == "gpu"


def test_a_claim_for_one_job_asks_for_its_need_too(world: Any) -> None:
    submit(world, "gpu", **GPU)
    assert claimed(world, "small", job_id="gpu") is None
    register(world, "big", accelerators=1)
    assert claimed(world, "big", job_id="gpu") == "gpu"


def test_a_job_says_what_it_waits_for_while_nobody_offers_it(world: Any) -> None:
    def waits() -> str | None:
        words = world.manager.job("gpu").waiting_for
        return None if words is None else str(words)

    register(world, "small", cpus=2)
    submit(world, "gpu", **GPU)
    assert waits() == "no node offers accelerators=1 (1 node known); add one, or ask for less"
    register(world, "big", accelerators=2)
    assert waits() is None
    order(world, "big", NodeOrder.CORDON)
    assert "big does and is cordoned" in str(waits())
    order(world, "big", NodeOrder.UNCORDON)
    world.time.advance(61)
    assert "no node offers" in str(waits()), "a node that is lost offers nothing"
    world.manager.node_heartbeat("big", NodeHeartbeat())
    assert claimed(world, "big") == "gpu"
    assert waits() is None


@pytest.mark.parametrize("other", ["fits", "cordoned", "small", "lost", "unknown"])
def test_a_failed_task_waits_for_another_node_only_while_one_can_take_it(
    world: Any, policies: Any, other: str
) -> None:
    """L18: the node that failed it is not its next claimer while others are free."""
    register(world, "w1", accelerators=1)
    if other == "lost":
        register(world, "w2", accelerators=1)
        world.time.advance(61)
    submit(world, "gpu", **GPU)
    world.fail(world.claim("w1"), policies.retry())
    if other in {"fits", "cordoned", "small"}:
        register(world, "w2", accelerators=0 if other == "small" else 1)
        world.manager.node_heartbeat("w2", NodeHeartbeat())
    if other == "cordoned":
        order(world, "w2", NodeOrder.CORDON)
    world.time.advance(0.1)
    assert claimed(world, "w1") == (None if other == "fits" else "gpu")
    if other == "fits":
        assert claimed(world, "w2") == "gpu"


def test_a_cordoned_node_keeps_its_leases_and_gets_no_more(world: Any) -> None:
    submit(world, "j", tasks=2)
    register(world, "w1")
    lease = world.claim("w1", claim_id="c1")
    assert order(world, "w1", NodeOrder.CORDON) is NodeDuty.CORDONED
    assert claimed(world, "w1") is None
    world.beat(lease)
    assert world.claim("w1", claim_id="c1").lease_id == lease.lease_id, "a repeated claim"
    world.restart()
    register(world, "w1")
    assert claimed(world, "w1") is None, "durable, also over a registration"
    assert order(world, "w1", NodeOrder.UNCORDON) is NodeDuty.ACTIVE
    assert claimed(world, "w1") == "j"
    assert node_events(world) == ["NODE_CORDONED", "NODE_UNCORDONED"]


ENDS = ["complete", "fail", "cancel", "lapse"]


@pytest.mark.parametrize("end", ENDS)
def test_a_node_is_drained_when_its_last_lease_has_ended(
    world: Any, policies: Any, end: str
) -> None:
    submit(world, "j", tasks=2)
    register(world, "w1")
    first, last = world.claim("w1"), world.claim("w1")
    assert order(world, "w1", NodeOrder.DRAIN) is NodeDuty.DRAINING
    world.restart()
    world.complete(first)
    assert world.manager.nodes().items[0].running == 1
    {
        "complete": lambda: world.complete(last),
        "fail": lambda: world.fail(last, policies.retry(counts=False)),
        "cancel": lambda: world.manager.cancel_job("j"),
        "lapse": world.lapse,
    }[end]()
    (node,) = world.manager.nodes().items
    assert (node.duty, node.running) == (NodeDuty.DRAINED, 0)
    assert node_events(world) == ["NODE_DRAINING", "NODE_DRAINED"]
    assert order(world, "w1", NodeOrder.DRAIN) is NodeDuty.DRAINED
    assert order(world, "w1", NodeOrder.UNCORDON) is NodeDuty.ACTIVE


def test_an_idle_node_is_drained_at_once(world: Any) -> None:
    register(world, "w1")
    assert order(world, "w1", NodeOrder.DRAIN) is NodeDuty.DRAINED
    assert node_events(world) == ["NODE_DRAINING", "NODE_DRAINED"]


def test_an_order_to_an_unknown_node_is_not_found(world: Any) -> None:
    with pytest.raises(NotFound):
        order(world, "nobody", NodeOrder.DRAIN)


def test_what_scripts_import_is_told_to_all_nodes_until_their_jobs_end(world: Any) -> None:
    def told(node_id: str = "idle") -> list[str]:
        return list(world.manager.node_heartbeat(node_id, NodeHeartbeat()).imports)

    for node_id in ("busy", "idle"):
        register(world, node_id)
    submit(world, "j")
    lease = world.claim("busy")
    assert told() == []
    imports = ["torch:", "sklearn.datasets:load_digits"]
    world.manager.heartbeat(lease.lease_id, HeartbeatRequest(imports=imports))
    world.beat(lease)
    assert told() == told("busy") == imports
    world.complete(lease)
    assert told() == []


def test_of_many_jobs_the_imports_of_the_last_are_told(world: Any) -> None:
    register(world, "w")
    submit(world, "j", tasks=2)
    for number in range(34):
        submit(world, f"job-{number}")
        lease = world.claim("w", job_id=f"job-{number}")
        world.manager.heartbeat(
            lease.lease_id, HeartbeatRequest(imports=[f"m{number}:", f"n{number}:", "torch:"])
        )
    told = world.manager.node_heartbeat("w", NodeHeartbeat()).imports
    assert len(told) == 64
    assert told[:2] == ["m2:", "n2:"]


@pytest.mark.parametrize("word", ["os", "a b:", "x:y;z", "../x:", "x" * 129 + ":", "é:"])
def test_an_import_that_is_none_is_refused(word: str) -> None:
    with pytest.raises(ValueError, match="imports"):
        HeartbeatRequest(imports=[word])


def test_an_order_that_was_not_kept_leaves_a_node_draining(world: Any) -> None:
    """What is remembered of nodes is asked again once changes are lost."""
    submit(world, "job-1")
    register(world, "w1")
    lease = world.manager.claim(ClaimRequest(node_id="w1"))
    assert order(world, "w1", NodeOrder.DRAIN) is NodeDuty.DRAINING
    with suppress(ZeroDivisionError), world.store.group():
        assert order(world, "w1", NodeOrder.UNCORDON) is NodeDuty.ACTIVE
        _ = 1 / 0
    world.manager.changes_lost()
    world.manager.cancel_job(lease.job_id)
    assert world.manager.nodes().items[0].duty is NodeDuty.DRAINED
