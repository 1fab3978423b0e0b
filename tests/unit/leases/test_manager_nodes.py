"""Registered workers."""

from typing import Any

import pytest

from flashruntime.errors import NotFound, Superseded
from flashruntime.protocol.nodes import NodeHeartbeat, NodeRegistration


def register(world: Any, node_id: str = "w1", **more: Any) -> str:
    registration = NodeRegistration(node_id=node_id, **more)
    return str(world.manager.register_node(registration).session_id)


def test_liveness_is_counted_by_the_coordinators_own_clock(world: Any) -> None:
    session = register(world, hostname="h")
    world.time.advance(30)
    (node,) = world.manager.nodes().items
    assert (node.idle_s, node.status, node.hostname) == (30.0, "live", "h")
    world.time.advance(31)
    assert world.manager.nodes().items[0].status == "lost"
    assert world.manager.node_heartbeat("w1", NodeHeartbeat(session_id=session)).idle_s == 0.0


def test_each_registration_is_a_session_of_its_own(world: Any) -> None:
    old = register(world)
    new = register(world)
    with pytest.raises(Superseded, match="of its own"):
        world.manager.node_heartbeat("w1", NodeHeartbeat(session_id=old))
    world.manager.node_heartbeat("w1", NodeHeartbeat(session_id=new))
    assert len(world.manager.nodes().items) == 1


def test_an_older_session_claims_nothing(world: Any) -> None:
    world.submit()
    old = register(world)
    new = register(world)
    with pytest.raises(Superseded):
        world.claim("w1", session_id=old)
    world.claim("w1", session_id=new)


def test_an_unregistered_node_may_claim_without_a_session(world: Any) -> None:
    world.submit()
    with pytest.raises(NotFound, match="register"):
        world.claim("w1", session_id="session-x")
    world.claim("w1")


def test_an_unknown_node_is_not_found(world: Any) -> None:
    with pytest.raises(NotFound, match="register"):
        world.manager.node_heartbeat("w\ud800", NodeHeartbeat())


def test_unknown_fields_and_broken_unicode_are_survived(world: Any) -> None:
    register(world, environment={"x": ["\ud800"]}, gpu="H200")
    world.restart()
    assert world.manager.nodes().items[0].idle_s == 0.0
