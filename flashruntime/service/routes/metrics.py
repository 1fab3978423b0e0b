"""Metrics for Prometheus."""

from fastapi import APIRouter, Response

from flashruntime.service.metrics import CONTENT_TYPE
from flashruntime.service.routes import Watcher

router = APIRouter(tags=["health"])


@router.get("/metrics", response_class=Response)
async def metrics(watching: Watcher) -> Response:
    """Return the coordinator's metrics in Prometheus' text format."""
    return Response(await watching.metrics(), headers={"Content-Type": CONTENT_TYPE})
