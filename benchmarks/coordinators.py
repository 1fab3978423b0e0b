"""A coordinator over loopback sockets, what is asked of it, and an empty handler beside it."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path

import httpx

from benchmarks.scenario import PAYLOADS, expect
from benchmarks.schema import BenchError
from flashruntime.client import CoordinatorClient
from flashruntime.protocol.jobs import JobSpec
from flashruntime.protocol.tasks import (
    ClaimRequest,
    CompleteRequest,
    HeartbeatRequest,
    Lease,
    OutputFile,
)
from flashruntime.testing import free_port

START_S = 30.0
OUTPUT = b'{"loss": 0.25}\n'
FLOOR = "empty FastAPI handler"


def spec(tasks: int, lease_s: float) -> JobSpec:
    """Return a job of so many tasks."""
    parameters: dict[str, object] = {"command": ["true"], "lease_seconds": lease_s}
    if tasks > 1:
        parameters |= {"command": ["true", "{n}"], "task_params": [{"n": n} for n in range(tasks)]}
    return JobSpec.model_validate(
        {
            "apiVersion": "flashml.dev/v1alpha1",
            "kind": "Job",
            "metadata": {"name": "bench"},
            "spec": {"workload": {"type": "command", "parameters": parameters}},
        }
    )


def claimed(client: CoordinatorClient, job_id: str, wait_s: float = 0.0) -> Lease:
    """Claim a task; BenchError where there is none."""
    lease = client.claim(ClaimRequest(node_id="bench", job_id=job_id, wait_s=wait_s))
    if lease is None:
        raise BenchError(f"job {job_id} gave no task")
    return lease


def committed(client: CoordinatorClient, lease: Lease) -> None:
    """Hand in a result the honest way: its bytes first, then their digest."""
    record = client.put_artifact(f"{lease.output_prefix}/metrics.json", OUTPUT)
    output = OutputFile(path="metrics.json", key=record.object_key, sha256=record.sha256)
    answer = client.complete(lease.lease_id, CompleteRequest(outputs=[output], step=1))
    expect(answer.accepted, f"the result was not accepted: {answer.detail}")


def cycle(client: CoordinatorClient, job_id: str) -> dict[str, float]:
    """Claim a task, renew its lease and commit its result; return the seconds of each."""
    marks = [time.monotonic()]
    lease = claimed(client, job_id)
    marks.append(time.monotonic())
    client.heartbeat(lease.lease_id, HeartbeatRequest(step=1))
    marks.append(time.monotonic())
    committed(client, lease)
    marks.append(time.monotonic())
    return spans(("claim", "heartbeat", "commit"), marks)


def spans(names: Sequence[str], marks: Sequence[float]) -> dict[str, float]:
    """Return the time between marks, by name."""
    pairs = pairwise(marks)
    return {name: after - before for name, (before, after) in zip(names, pairs, strict=True)}


@contextmanager
def floor(log: Path) -> Iterator[Callable[[], Mapping[str, float]]]:
    """Serve a FastAPI application that does nothing; give one timed call of it, as a claim is."""
    port = free_port()
    argv = [sys.executable, "-m", "uvicorn", "empty_app:app", "--host", "127.0.0.1"]
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*argv, "--port", str(port), "--no-access-log"], cwd=PAYLOADS, stdout=out, stderr=out
        )
    body = ClaimRequest(node_id="bench", job_id="job").model_dump_json()
    headers = {"Content-Type": "application/json"}

    def call() -> Mapping[str, float]:
        begun_s = time.monotonic()
        client.post("/empty", content=body, headers=headers).raise_for_status()
        return {"call": time.monotonic() - begun_s}

    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
            _until_up(call, process)
            yield call
    finally:
        process.kill()
        process.wait()


def _until_up(call: Callable[[], object], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        with suppress(httpx.HTTPError):
            call()
            return
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.02)
            break
    raise BenchError("the empty FastAPI application did not come up")
