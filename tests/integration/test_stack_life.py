"""The composed stack as a user runs it: no Toxiproxy, real torch, preemption, clean ends."""

import os
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from chaos.alive import mark
from flashruntime.client import CoordinatorClient
from flashruntime.protocol.jobs import JobRecord, JobState
from flashruntime.protocol.tasks import TaskRecord

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[2]
IDLE_EXIT_S = 2.0
NOTICE_S = 20.0


class ComposedStack:
    """`docker compose up coordinator worker --scale worker=2` under a name and port of its own."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.name = f"flashruntime-life-{uuid.uuid4().hex[:8]}"
        self.url = f"http://127.0.0.1:{port}"
        self._env = os.environ | {"FLASHML_PORT": str(port), "FLASHML_RUN_ID": self.name}

    def docker(self, *words: str) -> str:
        done = subprocess.run(
            ["docker", *words],
            cwd=ROOT,
            env=self._env,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"docker {words}: {done.stderr}"
        return done.stdout.strip()

    def compose(self, *words: str) -> str:
        return self.docker("compose", "--project-name", self.name, *words)

    def containers(self, service: str) -> list[str]:
        return self.compose("ps", "--quiet", service).split()

    def exit_code(self, container: str) -> int:
        return int(self.docker("inspect", "--format", "{{.State.ExitCode}}", container))

    def stop_s(self, container: str) -> float:
        began = time.monotonic()
        self.docker("stop", "--time", "60", container)
        return time.monotonic() - began

    def submit(self, *words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "flashruntime", "submit", *words, "--coordinator", self.url],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.split()[-1]


@contextmanager
def composed() -> Iterator[ComposedStack]:
    stack = ComposedStack()
    alive = mark(stack.name)
    try:
        stack.compose(
            "up", "--detach", "--wait", "--no-build", "--scale", "worker=2", "coordinator", "worker"
        )
        yield stack
    finally:
        stack.compose("down", "--volumes")
        if alive is not None:
            alive.close()


@pytest.fixture(scope="module")
def stack() -> Iterator[ComposedStack]:
    with composed() as up:
        yield up


@pytest.fixture
def client(stack: ComposedStack) -> Iterator[CoordinatorClient]:
    with CoordinatorClient(stack.url) as connected:
        yield connected


def follow(client: CoordinatorClient, job_id: str, until: Any, timeout_s: float = 60) -> TaskRecord:
    """Read the job's task until `until(task)`; each look is a request to the coordinator."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        (task,) = client.tasks(job_id)
        if until(task):
            return task
        time.sleep(0.05)
    raise AssertionError(f"{job_id} did not get there in {timeout_s} s: {task}")


def ended(client: CoordinatorClient, job_id: str) -> JobRecord:
    follow(client, job_id, lambda task: task.state.terminal)
    return client.job(job_id)


def test_a_preempted_worker_checkpoints_and_hands_its_lease_back_within_the_notice(
    stack: ComposedStack, client: CoordinatorClient
) -> None:
    words = "python3 digits.py --steps 3000 --every 100000 --width 256 --batch 8"
    job_id = stack.submit(words, "--source", "chaos/payloads", "--lease-seconds", "3")
    busy = follow(client, job_id, lambda task: (task.step or 0) >= 5)
    assert busy.node_id is not None
    (container,) = [c for c in stack.containers("worker") if busy.node_id.startswith(c[:12])]

    assert stack.stop_s(container) < NOTICE_S

    assert stack.exit_code(container) == 0
    job, (task,) = ended(client, job_id), client.tasks(job_id)
    assert (job.state, task.errors, task.attempts) == (JobState.SUCCEEDED, 0, 2)
    assert task.resumed_from is not None
    assert task.resumed_from >= (busy.step or 0), "no step that was reported was lost"
    failed = [e for e in client.events(job_id).items if e.type == "FAILURE_CLASSIFIED"]
    assert [event.data["failure_class"] for event in failed] == ["preemption"]
    assert not [e for e in client.events(job_id).items if e.type == "LEASE_EXPIRED"]
    stack.docker("start", container)


def test_a_job_leaves_its_metrics_and_artifacts_behind(
    stack: ComposedStack, client: CoordinatorClient, tmp_path: Path
) -> None:
    words = "python3 digits.py --steps 20 --every 10 --width 64"
    job_id = stack.submit(words, "--source", "chaos/payloads")
    assert ended(client, job_id).state is JobState.SUCCEEDED
    (task,) = client.tasks(job_id)
    assert task.metrics is not None
    assert task.metrics["steps"] == 20
    (artifact,) = client.artifacts(job_id)
    client.get_artifact(artifact.object_key, tmp_path / "metrics.json", artifact.sha256)
    assert "weights_sha256" in (tmp_path / "metrics.json").read_text(encoding="utf-8")
    assert '"seq": 20' in client.logs(job_id)


@pytest.mark.parametrize("service", ["worker", "coordinator"])
def test_an_idle_container_ends_cleanly_within_two_seconds(
    stack: ComposedStack, service: str
) -> None:
    for container in stack.containers(service):
        assert stack.stop_s(container) < IDLE_EXIT_S
        assert stack.exit_code(container) == 0
