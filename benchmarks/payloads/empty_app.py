"""A FastAPI application that does nothing: the floor of any answer over HTTP here."""

from typing import Any

from fastapi import FastAPI, Request

app = FastAPI()
LEASE = {"lease_id": "lease-0", "task_id": "task-0", "output_prefix": "outputs/job/00000/lease-0"}


@app.post("/empty")
async def empty(body: dict[str, Any]) -> dict[str, Any]:
    """Return the body."""
    return body


@app.post("/v1alpha1/leases/claim")
async def claim(body: dict[str, Any]) -> dict[str, Any]:
    """Return a lease on nothing."""
    return LEASE | body


@app.post("/v1alpha1/attempts/{lease_id}/heartbeat")
async def heartbeat(lease_id: str, body: dict[str, Any]) -> dict[str, Any]:
    """Return the body."""
    return body | {"lease_id": lease_id}


@app.put("/v1alpha1/artifacts/{key:path}")
async def put(key: str, request: Request) -> dict[str, Any]:
    """Take the bytes and keep nothing."""
    return {"object_key": key, "size_bytes": len(await request.body())}


@app.post("/v1alpha1/attempts/{lease_id}/complete")
async def complete(lease_id: str, body: dict[str, Any]) -> dict[str, Any]:
    """Accept what is not looked at."""
    return {"accepted": True, "detail": lease_id, "outputs": len(body)}
