"""Jobs: submit, look at, cancel."""

from typing import Annotated

from fastapi import APIRouter, Header, Query, Response
from fastapi.responses import PlainTextResponse

from flashruntime.protocol.events import EventPage
from flashruntime.protocol.jobs import JobPage, JobRecord, JobSpec
from flashruntime.protocol.tasks import ArtifactPage, TaskPage
from flashruntime.service.routes import MAX_ID, Id, Limit, Number, Running
from flashruntime.service.routes.streams import DOCUMENTED, Streamed
from flashruntime.service.strict import StrictRoute

router = APIRouter(tags=["jobs"], route_class=StrictRoute)
IdempotencyKey = Annotated[str | None, Header(min_length=1, max_length=256)]
After = Annotated[int, Query(ge=0, le=MAX_ID)]
Lines = Annotated[int, Query(ge=0, le=100_000)]


@router.post("/jobs", status_code=201)
async def submit(
    spec: JobSpec, services: Running, idempotency_key: IdempotencyKey = None
) -> JobRecord:
    """Submit a job; all its tasks appear at once. One key gives one job, however often sent."""
    return await services.jobs.submit(spec, idempotency_key)


@router.get("/jobs")
async def jobs(services: Running, after: str | None = None, limit: Limit = 100) -> JobPage:
    """List jobs, newest first."""
    return await services.ledger(services.manager.jobs, after, limit)


@router.get("/jobs/{job_id}")
async def job(job_id: Id, services: Running) -> JobRecord:
    """Return a job."""
    return await services.ledger(services.manager.job, job_id)


@router.post("/jobs/{job_id}/cancel")
async def cancel(job_id: Id, services: Running) -> JobRecord:
    """Cancel a job; one that has ended stays as it is."""
    return await services.ledger(services.manager.cancel_job, job_id)


@router.delete("/jobs/{job_id}", status_code=204)
async def delete(job_id: Id, services: Running) -> None:
    """Delete a job that has ended, with its tasks, events, output and artifacts; 409 while open."""
    await services.jobs.delete(job_id)


@router.get("/jobs/{job_id}/tasks")
async def tasks(
    job_id: Id, services: Running, after: Number = None, limit: Limit = 1_000
) -> TaskPage:
    """List the tasks of a job in index order."""
    return await services.ledger(services.manager.tasks, job_id, after, limit)


@router.get("/jobs/{job_id}/events", response_model=EventPage, responses=DOCUMENTED)
async def events(
    job_id: Id,
    services: Running,
    stream: Streamed,
    after: After = 0,
    limit: Limit = 1_000,
) -> EventPage | Response:
    """List the events of a job with ids above `after`, in order; as a stream where asked for."""
    if stream.wanted:
        known = await services.ledger(services.manager.job, job_id)
        return await stream.answer(known.job_id, after)
    return await services.ledger(services.manager.events, job_id, after, limit)


@router.get("/events", response_model=EventPage, responses=DOCUMENTED)
async def all_events(
    services: Running,
    stream: Streamed,
    after: After = 0,
    limit: Limit = 1_000,
) -> EventPage | Response:
    """List the events of coordinator and jobs with ids above `after`, or stream them, in order."""
    if stream.wanted:
        return await stream.answer(None, after)
    return await services.ledger(services.manager.events, None, after, limit)


@router.get("/jobs/{job_id}/logs", response_class=PlainTextResponse)
async def logs(
    job_id: Id,
    services: Running,
    tail_lines: Lines = 200,
    task: Number = None,
    attempt: Number = None,
) -> Response:
    """Return the last lines of the newest attempt of each task that printed, or of one named."""
    return PlainTextResponse(await services.jobs.output(job_id, tail_lines, task, attempt))


@router.get("/jobs/{job_id}/artifacts")
async def artifacts(job_id: Id, services: Running) -> ArtifactPage:
    """List the objects that the accepted results of a job refer to."""
    return await services.ledger(services.manager.job_objects, job_id)
