"""Inside the runtime image: a coordinator to be recorded, and a judge of what a power loss left.

It commits two objects, a small and a larger one, and a job whose source names them. The whole
application answers, in this process. Commands as in power_checkpoint.
"""

import asyncio
import hashlib
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx

from chaos.payloads.power_stage import Item, Outcome, answered, recorded, run
from flashruntime.errors import FlashError
from flashruntime.service.app import create_app

OBJECTS = {"small": 900, "large": 300_000}
AGES = ("old", "new")


def data(key: str, size_bytes: int) -> bytes:
    """Return the bytes of an object: the same ones whoever asks."""
    return hashlib.shake_128(key.encode()).digest(size_bytes)


@asynccontextmanager
async def coordinator(root: Path) -> AsyncIterator[httpx.AsyncClient]:
    """Run the application on this volume."""
    os.environ["FLASHML_LEDGER_DIR"] = str(root / "ledger")
    os.environ["FLASHML_ARTIFACT_DIR"] = str(root / "artifacts")
    os.environ["FLASHML_LOG_LEVEL"] = "ERROR"
    for name in ("ledger", "artifacts"):
        (root / name).mkdir(exist_ok=True)
    app = create_app()
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        url = "http://127.0.0.1:8000/v1alpha1"
        async with httpx.AsyncClient(transport=transport, base_url=url) as client:
            yield client


async def commit(client: httpx.AsyncClient, age: str, *, tell: bool) -> None:
    """Commit each object and then a job, and say so as soon as each is answered."""
    for name, size_bytes in OBJECTS.items():
        key = f"{name}-{age}"
        content = data(key, size_bytes)
        headers = {"X-Sha256": hashlib.sha256(content).hexdigest()}
        answer = await client.put(f"/artifacts/source/{key}", content=content, headers=headers)
        answer.raise_for_status()
        if tell:
            answered(key)
    answer = await client.post("/jobs", json=job(age), headers={"Idempotency-Key": age})
    answer.raise_for_status()
    if tell:
        answered(f"job-{age}")


def job(age: str) -> dict[str, object]:
    """Return a job that nobody runs, with an object as its source."""
    key, size_bytes = f"small-{age}", OBJECTS["small"]
    digest = hashlib.sha256(data(key, size_bytes)).hexdigest()
    parameters = {
        "command": ["python", "-c", "pass"],
        "inputs": [{"path": "main.py", "key": f"source/{key}", "sha256": digest}],
    }
    return {
        "apiVersion": "flashml.dev/v1alpha1",
        "kind": "Job",
        "metadata": {"name": f"power-{age}"},
        "spec": {"workload": {"type": "command", "parameters": parameters}},
    }


async def act(root: Path) -> None:
    """Commit the old ones before, and the new ones while, the recorder is there."""
    async with coordinator(root) as client:
        await commit(client, "old", tell=False)
    with recorded():
        async with coordinator(root) as client:
            await commit(client, "new", tell=True)


async def found(client: httpx.AsyncClient) -> dict[str, Item]:
    """Return what is there of each object and job."""
    items = {}
    for age in AGES:
        for name, size_bytes in OBJECTS.items():
            key = f"{name}-{age}"
            answer = await client.get(f"/artifacts/source/{key}")
            whole = answer.status_code == 200 and answer.content == data(key, size_bytes)
            items[key] = Item.ABSENT if answer.status_code == 404 else _item(whole)
    listing = (await client.get("/jobs")).raise_for_status().json()["items"]
    named = {each["name"]: each for each in listing}
    for age in AGES:
        each = named.get(f"power-{age}")
        items[f"job-{age}"] = Item.ABSENT if each is None else await _job(client, each["job_id"])
    return items


async def _job(client: httpx.AsyncClient, job_id: str) -> Item:
    answer = await client.get(f"/jobs/{job_id}/tasks")
    return _item(answer.status_code == 200 and len(answer.json()["items"]) == 1)


def _item(whole: bool) -> Item:
    return Item.WHOLE if whole else Item.TORN


async def judged(root: Path) -> Outcome:
    """Start a coordinator on the volume, look, and commit once more."""
    async with coordinator(root) as client:
        items = await found(client)
        await commit(client, "later", tell=False)
    return Outcome(True, items, "")


def look(root: Path) -> Outcome:
    """Judge one volume."""
    try:
        return asyncio.run(judged(root))
    except (FlashError, httpx.HTTPError, OSError) as error:
        return Outcome(False, {}, f"{type(error).__name__}: {error}")


def record(root: Path) -> None:
    """Commit, to be recorded."""
    asyncio.run(act(root))


if __name__ == "__main__":
    sys.exit(run(record, look))
