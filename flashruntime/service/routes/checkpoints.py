"""Checkpoints of a task, for workers that share no volume with one another."""

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.responses import StreamingResponse

from flashruntime.protocol.checkpoints import (
    CheckpointPage,
    CheckpointRecord,
    CommitRequest,
    LatestCheckpoint,
    LostWork,
    PartsAnswer,
    PartSize,
    PartsRequest,
    SetAsideRequest,
    TaskName,
)
from flashruntime.service.routes import Id, Running
from flashruntime.service.strict import StrictRoute

PATH = "/jobs/{job_id}/tasks/{task}/checkpoints"
MAX_SKIP = 16_000
router = APIRouter(tags=["checkpoints"], route_class=StrictRoute, prefix=PATH)
Digest = Annotated[str, Path(pattern="^[0-9a-f]{64}$")]
LeaseId = Annotated[str, Query(min_length=1, max_length=256)]
Skip = Annotated[str, Query(max_length=MAX_SKIP)]


async def _name(job_id: Id, task: Id) -> TaskName:
    return TaskName(job_id, task)


Task = Annotated[TaskName, Depends(_name)]


@router.get("")
async def checkpoints(task: Task, services: Running) -> CheckpointPage:
    """List the checkpoints that are kept of a task, newest first; `task` is its index or id."""
    return await services.ledger(services.manager.checkpoints, task)


@router.post("/parts")
async def announce(task: Task, body: PartsRequest, services: Running) -> PartsAnswer:
    """Announce the parts of an attempt's next checkpoint; the answer names those to be sent."""
    return await services.checkpoints.announce(task, body)


@router.put("/parts/{sha256}")
async def put_part(
    task: Task, sha256: Digest, lease_id: LeaseId, request: Request, services: Running
) -> PartSize:
    """Send the bytes of an announced part; bytes that hash to something else are refused."""
    return await services.checkpoints.put_part(task, lease_id, sha256, request.stream())


@router.get("/parts/{sha256}", response_class=StreamingResponse)
async def part(task: Task, sha256: Digest, services: Running) -> Response:
    """Return the bytes of a part of a committed checkpoint, hashed again."""
    size_bytes, blocks = await services.checkpoints.read_part(task, sha256)
    headers = {"ETag": f'"{sha256}"', "Content-Length": str(size_bytes)}
    return StreamingResponse(blocks, 200, headers, "application/octet-stream")


@router.post("/commit")
async def commit(task: Task, body: CommitRequest, services: Running) -> CheckpointRecord:
    """Commit a checkpoint; 409 unless all its bytes are here, 410 for a superseded attempt."""
    return await services.checkpoints.commit(task, body)


@router.get("/latest")
async def latest(task: Task, services: Running, skip: Skip = "") -> LatestCheckpoint:
    """Return the checkpoint to resume from, and the attempts so far; `skip` names some to omit."""
    return await services.checkpoints.latest(task, skip.split(","))


@router.post("/set-aside")
async def set_aside(task: Task, body: SetAsideRequest, services: Running) -> CheckpointRecord:
    """Tell that a checkpoint is of no use although it verifies; nothing resumes from it again."""
    call = services.manager.set_checkpoint_aside
    return await services.ledger(call, task, body.lease_id, body.manifest_id, body.reason)


@router.get("/lost-work")
async def lost_work(task: Task, services: Running) -> LostWork:
    """Return how many steps a loss of the newest attempt would cost, and earlier ones did."""
    return await services.ledger(services.manager.lost_work, task)
