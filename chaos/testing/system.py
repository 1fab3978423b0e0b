"""The twin of one run: a stack that trains, loses workers and recovers.

Time passes with each look at the coordinator's events, one step a look, so that nothing sleeps.
"""

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from chaos.history import boot_id
from chaos.model import (
    Container,
    JobRequest,
    JobView,
    JsonMap,
    JsonValue,
    NoTarget,
    Target,
    TaskView,
)
from chaos.ports import Checkpoint, CheckpointTree, Death, RunSpec, Stored, Takeover, WriteWindow

LAST_STEP = 200
CHECKPOINT_EVERY = 3
EXPIRES_AFTER = 3
OUTPUT = "a" * 64


@dataclass(slots=True)
class FakeJob:
    """A job with one task, its attempts and its checkpoints."""

    role: str
    job_id: str
    state: str = "PENDING"
    node_id: str | None = None
    lease_id: str | None = None
    attempts: int = 0
    step: int = 0
    resumed_from: int | None = None
    silent: int = 0
    checkpoints: list[Checkpoint] = field(default_factory=list)
    lineage: list[Takeover] = field(default_factory=list)

    @property
    def task_id(self) -> str:
        """The id of its only task."""
        return f"{self.job_id}-00000"


class FakeSystem:
    """Coordinator, workers and volume of one run, as Runtime, Containers, Files and Stack."""

    def __init__(self, spec: RunSpec) -> None:
        self.spec = spec
        self.lock = threading.RLock()
        self.jobs: dict[str, FakeJob] = {}
        self.history: list[dict[str, JsonValue]] = []
        self.down: set[str] = set()
        self.deaths: dict[str, Death] = {}
        self.labelled = True
        self.rotten: set[str] = set()
        self.is_up = False

    # Runtime

    def ready(self) -> bool:
        """Whether the stack runs."""
        return self.is_up

    def nodes(self) -> tuple[str, ...]:
        """Return the workers that run."""
        names = (f"worker-{number}" for number in range(1, self.spec.workers + 1))
        return tuple(name for name in names if name not in self.down)

    def submit(self, role: str, request: JobRequest) -> str:
        """Accept a job."""
        del request
        job = FakeJob(role, f"job-{len(self.jobs):012x}")
        self.jobs[job.job_id] = job
        self._event(job, "TASK_CREATED")
        return job.job_id

    def accepted(self) -> tuple[str, ...]:
        """Return the ids of all jobs."""
        return tuple(self.jobs)

    def job(self, role: str, job_id: str) -> JobView:
        """Return a job and its task."""
        with self.lock:
            job = self.jobs[job_id]
            held = job.lease_id is not None and job.silent < EXPIRES_AFTER
            state = {"SUCCEEDED": "COMPLETED"}.get(job.state, "LEASED" if held else "PENDING")
            task = TaskView(job.task_id, state, job.node_id, job.lease_id, job.attempts, job.step)
            return JobView(role, job_id, job.state, task)

    def events(self, after: int) -> tuple[JsonMap, ...]:
        """Let one step of time pass and return what is new."""
        with self.lock:
            for job in self.jobs.values():
                self._advance(job)
            return tuple(self.history[after:])

    def events_again(self) -> tuple[JsonMap, ...]:
        """Return all that is in the ledger."""
        with self.lock:
            return tuple(self.history)

    def final(self, job_id: str) -> JsonMap:
        """Return the end of a job; its weights depend on its steps alone."""
        job = self.jobs[job_id]
        view = self.job(job.role, job_id)
        task: dict[str, JsonValue] = {
            "task_id": job.task_id,
            "job_id": job.job_id,
            "state": view.task.state if view.task else "PENDING",
            "lease_id": job.lease_id,
            "resumed_from": job.resumed_from,
        }
        return {
            "job": {"job_id": job_id, "state": job.state, "reason": None},
            "tasks": [task],
            "artifacts": [
                {
                    "key": f"{job_id}/output",
                    "sha256": OUTPUT,
                    "bytes_sha256": None if OUTPUT in self.rotten else OUTPUT,
                }
            ],
            "metrics": {
                "weights_sha256": f"weights after {job.step}",
                "sample_chain": f"samples until {job.step}",
                "samples_seen": job.step,
                "steps": job.step,
            },
            "logs": "",
        }

    def store(self, key: str, data: bytes) -> Stored:
        """Take everything."""
        del key, data
        return Stored(200)

    def fetch(self, key: str) -> str | None:
        """Give what every job's output is, unless it is rotten: that is told, not given."""
        job = self.jobs[key.partition("/")[0]]
        return None if self._told_rotten(job) else OUTPUT

    def _told_rotten(self, job: FakeJob) -> bool:
        with self.lock:
            if OUTPUT in self.rotten:
                data: JsonMap = {"key": f"{job.job_id}/output", "sha256": OUTPUT, "reason": "rot"}
                self._event(job, "ARTIFACT_CORRUPT", data)
            return OUTPUT in self.rotten

    def _advance(self, job: FakeJob) -> None:
        if job.state == "SUCCEEDED":
            return
        if job.lease_id is None or job.silent == EXPIRES_AFTER:
            self._claim(job)
        elif job.silent or job.node_id in self.down:
            job.silent += 1
            if job.silent == EXPIRES_AFTER:
                self._event(job, "LEASE_EXPIRED")
        else:
            self._train(job)

    def _claim(self, job: FakeJob) -> None:
        busy = {other.node_id for other in self.jobs.values() if other.state == "RUNNING"}
        free = [name for name in self.nodes() if name not in busy]
        if not free:
            return
        newest = max(job.checkpoints, key=lambda found: found.step, default=None)
        job.attempts += 1
        job.lease_id, job.node_id = f"lease-{job.role}-{job.attempts}", free[0]
        job.silent, job.state = 0, "RUNNING"
        job.step = newest.step if newest else 0
        job.resumed_from = newest.step if newest else None
        manifest = newest.manifest_id if newest else None
        job.lineage.append(Takeover(job.lease_id, manifest, job.resumed_from))
        self._event(job, "LEASE_CLAIMED", {"attempt_number": job.attempts})

    def _train(self, job: FakeJob) -> None:
        job.step += 1
        if job.step % CHECKPOINT_EVERY == 0:
            manifest = f"{job.lease_id}/{job.step}"
            job.checkpoints.append(Checkpoint(job.step, "valid", job.lease_id, manifest))
        if job.step >= LAST_STEP:
            job.state = "SUCCEEDED"
            output: JsonValue = {"key": f"{job.job_id}/output", "sha256": OUTPUT}
            self._event(job, "TASK_COMMIT_ACCEPTED", {"outputs": [output]})
            self._event(job, "JOB_SUCCEEDED")

    def _event(self, job: FakeJob, kind: str, data: JsonMap | None = None) -> None:
        self.history.append(
            {
                "id": len(self.history) + 1,
                "type": kind,
                "job_id": job.job_id,
                "task_id": job.task_id,
                "lease_id": job.lease_id,
                "mono_ns": time.monotonic_ns(),
                "boot_id": boot_id(),
                "data": {"node_id": job.node_id, **(data or {})},
            }
        )

    # Containers

    def of_node(self, node_id: str) -> Container:
        """Return the container of a worker."""
        if node_id not in self.nodes():
            raise NoTarget(f"no container of {node_id}")
        return Container(f"id-{node_id}", node_id, self.spec.run_id if self.labelled else None)

    def coordinator(self) -> Container:
        """Return the coordinator's container."""
        return Container("id-coordinator", "coordinator", self.spec.run_id)

    def proxy(self) -> Container:
        """Return Toxiproxy's container."""
        return Container("id-toxiproxy", "toxiproxy", self.spec.run_id)

    def kill(self, container: Container, signal: str = "SIGKILL") -> None:
        """Take a worker down."""
        del signal
        self.down.add(container.service)
        self.deaths[container.service] = Death(137, time.monotonic_ns())

    def pause(self, container: Container) -> None:
        """Take a worker's time away; what is killed then is killed all the same."""
        self.down.add(container.service)

    def get_ready_to_kill(self) -> None:
        """Need nothing."""

    def kill_frozen(self, container: Container) -> None:
        """Take a worker down."""
        self.kill(container)

    def start(self, container: Container) -> None:
        """Bring a worker back; a coordinator looks through its store."""
        self.down.discard(container.service)
        if container.service == "coordinator":
            for job in self.jobs.values():
                self._told_rotten(job)

    def wait_death(self, container: Container, since_ns: int, timeout_s: float) -> Death | None:
        """Return the death of a worker that was killed."""
        del since_ns, timeout_s
        return self.deaths.get(container.service)

    # Files

    def committed(self, job_id: str, task_id: str) -> tuple[Checkpoint, ...]:
        """Return the committed steps."""
        del task_id
        with self.lock:
            found = self.jobs[job_id].checkpoints
            return tuple(replace(checkpoint, state="committed") for checkpoint in found)

    def tree(self, job_id: str, task_id: str) -> CheckpointTree:
        """Return the tree of a task."""
        del task_id
        with self.lock:
            job = self.jobs[job_id]
            return CheckpointTree(tuple(job.checkpoints), tuple(job.lineage))

    def staged_parts(self, job_id: str, task_id: str, attempt_id: str, step: int) -> JsonMap:
        """Return an empty staging directory: saves are instantaneous here."""
        del job_id, task_id, attempt_id, step
        return {"parts": {}, "manifest": False, "committed": False}

    def wait_write_window(
        self, target: Target, min_step: int, timeout_s: float
    ) -> WriteWindow | None:
        """Return None: saves are instantaneous here."""
        del target, min_step, timeout_s
        return None

    # Stack

    def up(self) -> None:
        """Start."""
        self.is_up = True

    def unsteady(self) -> tuple[str, ...]:
        """Return the workers that are down."""
        return tuple(f"{name} is down" for name in sorted(self.down))

    def save_logs(self, folder: Path) -> None:
        """Write a log of the coordinator, and one in which the workers tell of their claims."""
        (folder / "coordinator.log").write_text('{"seq": 1}\n', encoding="utf-8")
        claims = [event for event in self.history if event["type"] == "LEASE_CLAIMED"]
        lines = "".join(
            json.dumps({**claim, "event": "lease_claimed", "data": {}}) + "\n" for claim in claims
        )
        (folder / "workers.log").write_text(lines, encoding="utf-8")

    def addresses(self) -> Mapping[str, str]:
        """Return a made-up address."""
        return {"coordinator": "http://127.0.0.1:1"}
