"""Health: alive, and able to work."""

from fastapi import APIRouter

from flashruntime.service.routes import Running

router = APIRouter(tags=["health"])


@router.get("/healthz")
async def healthz() -> dict[str, str]:
    """Answer as long as the process serves requests."""
    return {"status": "ok"}


@router.get("/readyz")
async def readyz(services: Running) -> dict[str, str | int]:
    """Answer 200 while the ledger can be written, 503 otherwise."""
    await services.check()
    return {"status": "ready", "damaged_artifacts": services.care.damaged}
