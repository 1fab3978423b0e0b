"""Leases and attempts: claim, heartbeat, output, complete, fail."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from flashruntime.protocol.tasks import (
    ClaimRequest,
    CompleteAnswer,
    CompleteRequest,
    FailAnswer,
    FailRequest,
    HeartbeatRequest,
    Lease,
    LeaseStatus,
    LogSize,
)
from flashruntime.service import jsonlog
from flashruntime.service.callers import require_own
from flashruntime.service.routes import MAX_ID, Id, Running
from flashruntime.service.strict import StrictRoute, read_body

router = APIRouter(tags=["leases"], route_class=StrictRoute)
MAX_OUTPUT_BYTES = 16 * 1024 * 1024
Offset = Annotated[int, Query(ge=0, le=MAX_ID)]


@router.post("/leases/claim", response_model=Lease, responses={204: {"description": "No task"}})
async def claim(body: ClaimRequest, request: Request, services: Running) -> Lease | Response:
    """Ask for a task, waiting up to `wait_s` for one."""
    await require_own(request, {"node_id": body.node_id})

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    services.sessions.claiming(body.node_id, body.session_id)
    jsonlog.bind(node_id=body.node_id)
    lease = await services.attempts.claim(body, gone)
    if lease is not None:
        jsonlog.bind(lease_id=lease.lease_id, task_id=lease.task_id)
    return Response(status_code=204) if lease is None else lease


@router.post("/attempts/{lease_id}/heartbeat")
async def heartbeat(
    lease_id: Id, services: Running, body: HeartbeatRequest | None = None
) -> LeaseStatus:
    """Renew a lease; 410 once it is superseded, closed or cancelled: the attempt must stop."""
    body = body or HeartbeatRequest()
    services.sessions.heard(lease_id)
    status = await services.ledger(services.manager.heartbeat, lease_id, body)
    services.stepped(lease_id, body.step)
    return status


@router.put("/attempts/{lease_id}/logs")
async def append_output(
    lease_id: Id, request: Request, services: Running, offset: Offset
) -> LogSize:
    """Append output; a repeated offset is harmless, a gap is 409 with the `size` so far."""
    data = await read_body(request, MAX_OUTPUT_BYTES)
    return await services.attempts.append_output(lease_id, offset, data)


@router.post("/attempts/{lease_id}/complete")
async def complete(lease_id: Id, body: CompleteRequest, services: Running) -> CompleteAnswer:
    """Hand in a result; exactly one is accepted for each task."""
    return await services.ledger(services.manager.complete, lease_id, body)


@router.post("/attempts/{lease_id}/fail")
async def fail(lease_id: Id, body: FailRequest, services: Running) -> FailAnswer:
    """Report a failure; the answer is what the policy decided."""
    return await services.attempts.fail(lease_id, body)
