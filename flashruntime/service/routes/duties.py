"""What an operator asks of nodes: cordon, uncordon, drain."""

from fastapi import APIRouter

from flashruntime.protocol.nodes import NodeOrder, NodeRecord
from flashruntime.service.routes import Id, Running

router = APIRouter(tags=["nodes"])


@router.post("/nodes/{node_id}/cordon")
async def cordon(node_id: Id, services: Running) -> NodeRecord:
    """Give a node no new tasks; those that it has go on."""
    return await services.sessions.order(node_id, NodeOrder.CORDON)


@router.post("/nodes/{node_id}/uncordon")
async def uncordon(node_id: Id, services: Running) -> NodeRecord:
    """Give a node tasks again."""
    return await services.sessions.order(node_id, NodeOrder.UNCORDON)


@router.post("/nodes/{node_id}/drain")
async def drain(node_id: Id, services: Running) -> NodeRecord:
    """Cordon a node, and let it checkpoint and hand back the tasks that it has."""
    return await services.sessions.order(node_id, NodeOrder.DRAIN)
