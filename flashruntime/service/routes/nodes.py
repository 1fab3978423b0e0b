"""Nodes: register, sign of life, list."""

from fastapi import APIRouter

from flashruntime.protocol.nodes import (
    NodeHeartbeat,
    NodePage,
    NodeRecord,
    NodeRegistered,
    NodeRegistration,
)
from flashruntime.service.routes import Id, Running
from flashruntime.service.strict import StrictRoute

router = APIRouter(tags=["nodes"], route_class=StrictRoute)


@router.post("/nodes/register")
async def register(registration: NodeRegistration, services: Running) -> NodeRegistered:
    """Introduce a worker; each registration is a session of its own."""
    return await services.ledger(services.manager.register_node, registration)


@router.post("/nodes/{node_id}/heartbeat")
async def heartbeat(
    node_id: Id, services: Running, beat: NodeHeartbeat | None = None
) -> NodeRecord:
    """Note a worker's sign of life, stamped with the coordinator's clock."""
    beat = beat or NodeHeartbeat()
    return await services.ledger(services.manager.node_heartbeat, node_id, beat)


@router.get("/nodes")
async def nodes(services: Running) -> NodePage:
    """List all known nodes."""
    return await services.ledger(services.manager.nodes)
