"""A real coordinator and real workers, each a process of its own."""

import json
import os
import queue
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from threading import Event, Thread
from typing import Any, Self, TypeVar

from flashruntime.client import CoordinatorClient
from flashruntime.protocol.jobs import JobRecord, JobSpec

PATIENCE_S = 30.0
T = TypeVar("T")
ROOT = Path(__file__).parents[2]


class Service:
    """A flashruntime process whose JSON lines can be awaited."""

    def __init__(self, verb: list[str], env: dict[str, str], cwd: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "flashruntime", *verb],
            env={**os.environ, "PYTHONPATH": str(ROOT), **env},
            cwd=cwd,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.lines: list[str] = []
        self._new: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            self._new.put(line)
        self._new.put(None)

    def await_line(self, pattern: str) -> re.Match[str]:
        """Return the first match in the lines that have not been looked at."""
        while True:
            line = self._new.get(timeout=PATIENCE_S)
            assert line is not None, f"ended without {pattern!r}: {''.join(self.lines)}"
            if found := re.search(pattern, line):
                return found

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines if line.startswith("{")]

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def exit_code(self, timeout_s: float = PATIENCE_S) -> int:
        return self.process.wait(timeout_s)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


class Stack:
    """A coordinator with its data below a directory, and workers."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.services: list[Service] = []
        self.port = 0
        self.start_coordinator()
        self.client = CoordinatorClient(self.url)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        for service in reversed(self.services):
            service.signal(signal.SIGCONT)
            service.end()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start_coordinator(self) -> Service:
        env = {
            "FLASHML_LEDGER_DIR": str(self.root / "ledger"),
            "FLASHML_ARTIFACT_DIR": str(self.root / "artifacts"),
        }
        self.coordinator = Service(["serve", "--port", str(self.port)], env, self.root)
        self.services.append(self.coordinator)
        self.port = int(self.coordinator.await_line(r"listening on http://127.0.0.1:(\d+)")[1])
        self.coordinator.await_line('"coordinator_ready"')
        return self.coordinator

    def start_worker(self, name: str, **env: str) -> Service:
        settings = {
            "FLASHML_COORDINATOR_URL": self.url,
            "FLASHML_CHECKPOINT_ROOT": str(self.root / "checkpoints"),
            "FLASHML_WORK_DIR": str(self.root / f"work-{name}"),
            "FLASHML_NODE_ID": name,
            **env,
        }
        worker = Service(["work"], settings, self.root)
        self.services.append(worker)
        worker.await_line('"worker_registered"')
        return worker

    def submit(self, code: str, **parameters: Any) -> str:
        """Submit a Python script and return the job's id."""
        retries = parameters.pop("maxTaskAttempts", 1)
        files = {"train.py": code, **parameters.pop("files", {})}
        inputs = []
        for path, content in files.items():
            digest = sha256(content.encode()).hexdigest()
            self.client.put_artifact(f"inputs/{digest}", content.encode())
            inputs.append({"path": path, "key": f"inputs/{digest}", "sha256": digest})
        body = {
            "apiVersion": "flashml.dev/v1alpha1",
            "kind": "Job",
            "metadata": {"name": "test"},
            "spec": {
                "workload": {
                    "type": "command",
                    "parameters": {
                        "command": [sys.executable, "train.py"],
                        "inputs": inputs,
                        "lease_seconds": 1.5,
                        **parameters,
                    },
                },
                "retryPolicy": {"maxTaskAttempts": retries},
            },
        }
        return self.client.submit(JobSpec.model_validate(body)).job_id

    def ended(self, job_id: str) -> JobRecord:
        """Wait until a job has ended."""
        return self.until(lambda: job if (job := self.client.job(job_id)).state.terminal else None)

    def until(self, look: Callable[[], T | None]) -> T:
        """Look again and again at something that only polling shows."""
        pause = Event()
        for _ in range(int(PATIENCE_S / 0.05)):
            found = look()
            if found:
                return found
            pause.wait(0.05)
        raise AssertionError(f"did not happen within {PATIENCE_S} s")

    def event_types(self, job_id: str) -> list[str]:
        return [event.type.value for event in self.client.events(job_id).items]
