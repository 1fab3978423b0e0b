"""A FastAPI application that does nothing: the floor of any answer over HTTP here."""

from typing import Any

from fastapi import FastAPI

app = FastAPI()


@app.post("/empty")
async def empty(body: dict[str, Any]) -> dict[str, Any]:
    """Return the body."""
    return body
