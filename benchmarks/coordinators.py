"""A coordinator over loopback sockets, what is asked of it, and an empty handler beside it."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Told:
    """What clients did at once: the time from the first call to the last answer, and each call."""

    seconds: float
    calls: Mapping[str, Sequence[float]]


class Clients:
    """Client processes of a coordinator, each with one connection; close them."""

    def __init__(self, port: int, count: int) -> None:
        self._processes = [
            subprocess.Popen(
                [sys.executable, PAYLOADS / "cycle_client.py", str(port), f"client-{number}"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for number in range(count)
        ]

    def do(self, what: str, count: int, clients: int | None = None) -> Told:
        """Let the first `clients` (None: all) do something, `count` times each, at once."""
        chosen = self._processes[:clients]
        for process in chosen:
            assert process.stdin is not None  # noqa: S101 (a pipe, see above)
            process.stdin.write(json.dumps({"do": what, "count": count}) + "\n")
            process.stdin.flush()
        answers = [self._answer(process) for process in chosen]
        calls: dict[str, list[float]] = {}
        for _, _, times in answers:
            for name, values in times.items():
                calls.setdefault(name, []).extend(values)
        first, last = min(each[0] for each in answers), max(each[1] for each in answers)
        return Told(last - first, calls)

    def _answer(
        self, process: subprocess.Popen[str]
    ) -> tuple[float, float, dict[str, list[float]]]:
        assert process.stdout is not None  # noqa: S101 (a pipe, see above)
        line = process.stdout.readline()
        expect(bool(line), "a client ended; its last words are above")
        begun, ended, times = json.loads(line)
        return begun, ended, times

    def close(self) -> None:
        """End the processes."""
        for process in self._processes:
            process.kill()
            process.communicate()


@contextmanager
def floor(log: Path) -> Iterator[Callable[[], Mapping[str, float]]]:
    """Serve a FastAPI application that does nothing; give one timed call of it, as a claim is."""
    with empty_application(log) as (_port, call):
        yield call


@contextmanager
def empty_application(log: Path) -> Iterator[tuple[int, Callable[[], Mapping[str, float]]]]:
    """Serve a FastAPI application that does nothing; give its port and a timed call of it."""
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
            yield port, call
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
