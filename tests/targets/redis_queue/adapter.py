"""The one adapter by which the harness knows the queue: how it starts, what it says, what it is.

What it says is told in the words that faults, triggers and judges speak: jobs, tasks, leases. A
lease is an attempt at a task here, "TASK:ATTEMPT".
"""

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from docker import DockerClient

from chaos.model import Container, JobRequest, JobView, JsonMap, TaskView, Unreachable
from chaos.ports import Canary, CheckpointTree, Probe, RunSpec, Stored, World
from chaos.ports.absent import absent
from chaos.targets.containers import RunContainers
from chaos.targets.engine import SERVICE_KEY, explained, run_labels
from chaos.targets.helper import Helper, Reach
from chaos.targets.logs import EngineLogs
from chaos.targets.machine import DockerMachine
from chaos.targets.packets import NamespacePackets
from chaos.targets.processes import RunProcesses
from chaos.targets.tracers import EngineTracers
from tests.targets.redis_queue.resp import Redis, canary

IMAGE = "flashruntime/redis-queue:local"
SERVER = "redis"
PORT = 6379
CANARIES = "import json, resp; print(json.dumps([resp.canary({!r}, {}, {}) for _ in range({})]))"
SERVE = (
    "redis-server --bind 0.0.0.0 --protected-mode no --save  --appendonly yes "
    "--appendfsync always --dir /data"
)
LOSES = "loses"


class QueueContainers(RunContainers):
    """The containers of a run; the server stands where another system has its coordinator."""

    def coordinator(self) -> Container:
        """Return the server's container."""
        return self.service(SERVER)


class QueueStack:
    """A server and its workers in a network of their own, made through the engine."""

    def __init__(self, client: DockerClient, spec: RunSpec, containers: RunContainers) -> None:
        self._client = client
        self._spec = spec
        self._containers = containers

    def up(self) -> None:
        """Start the server, then the workers."""
        name, labels = f"queue-{self._spec.run_id}", run_labels(self._spec.run_id)
        self._client.networks.create(name, labels=labels)
        data = self._client.volumes.create(name, labels=labels)
        self._run(SERVER, name, command=SERVE.split(" "), volumes=[f"{data.name}:/data:rw"],
                  ports={f"{PORT}/tcp": ("127.0.0.1", None)})  # fmt: skip
        loses = "1" if self._spec.planted == LOSES else "0"
        for number in range(1, self._spec.workers + 1):
            self._run(f"worker-{number}", name, environment={"LOSES": loses},
                      restart_policy={"Name": "on-failure"})  # fmt: skip

    def _run(self, service: str, network: str, **more: Any) -> None:
        self._client.containers.run(
            IMAGE,
            name=f"{network}-{service}",
            hostname=service,
            detach=True,
            labels=run_labels(self._spec.run_id) | {SERVICE_KEY: service},
            networking_config={network: self._client.api.create_endpoint_config(aliases=[service])},
            network=network,
            init=True,
            read_only=True,
            cap_drop=["ALL"],
            security_opt=["no-new-privileges:true"],
            mem_limit="128m",
            **more,
        )

    def unsteady(self) -> tuple[str, ...]:
        """Return the services that do not run."""
        running = {
            container.labels.get(SERVICE_KEY)
            for container in self._client.containers.list(
                filters={"label": [f"{k}={v}" for k, v in run_labels(self._spec.run_id).items()]}
            )
        }
        wanted = [SERVER, *(f"worker-{n}" for n in range(1, self._spec.workers + 1))]
        return tuple(f"{name} does not run" for name in wanted if name not in running)

    def save_logs(self, folder: Path) -> None:
        """Write the log of every container to a file in `folder`."""
        self._containers.save_logs(folder)

    def addresses(self) -> Mapping[str, str]:
        """Return where the server is."""
        return {SERVER: f"127.0.0.1:{self._containers.published(SERVER, PORT)}"}


class QueueRuntime:
    """The queue, as its users see it through Redis."""

    def __init__(self, containers: RunContainers) -> None:
        self._containers = containers
        self._lock = threading.Lock()
        self._redis: Redis | None = None

    def ready(self) -> bool:
        """Whether the server answers."""
        try:
            return bool(self._ask("PING") == "PONG")
        except Unreachable:
            return False

    def nodes(self) -> tuple[str, ...]:
        """Return the workers that have ever started."""
        return tuple(sorted(self._ask("HKEYS", "workers")))

    def submit(self, role: str, request: JobRequest) -> str:
        """Fill the queue with as many tasks as the request has parameters."""
        tasks = [f"{role}-{number:03d}" for number in range(len(request.task_params))]
        self._ask("SET", "tasks", len(tasks))
        self._ask("SET", "job", role)
        self._ask("RPUSH", "queue", *tasks)
        return role

    def accepted(self) -> tuple[str, ...]:
        """Return the one job."""
        return tuple(filter(None, [self._ask("GET", "job")]))

    def job(self, role: str, job_id: str) -> JobView:
        """Return the job and its tasks."""
        tasks = self._tasks(job_id)
        state = "SUCCEEDED" if all(task.state == "COMPLETED" for task in tasks) else "RUNNING"
        return JobView(role, job_id, state, tasks=tasks)

    def _tasks(self, job_id: str) -> tuple[TaskView, ...]:
        number = int(self._ask("GET", "tasks") or 0)
        results, holders, attempts = (
            self._hash(name) for name in ("results", "holder", "attempts")
        )
        found = []
        for index in range(number):
            task = f"{job_id}-{index:03d}"
            holder, attempt = holders.get(task), int(attempts.get(task, 0))
            state = "COMPLETED" if task in results else "LEASED" if holder else "PENDING"
            lease_id = f"{task}:{attempt}" if attempt else None
            found.append(TaskView(task, state, holder, lease_id, attempt))
        return tuple(found)

    def _hash(self, name: str) -> dict[str, str]:
        words = self._ask("HGETALL", name)
        return dict(zip(words[::2], words[1::2], strict=True))

    def events(self, after: int) -> tuple[JsonMap, ...]:
        """Return the events beyond the first `after`, in order."""
        job_id = self._ask("GET", "job")
        lines = self._ask("LRANGE", "events", after, -1)
        return tuple(
            _event(number, job_id, json.loads(line))
            for number, line in enumerate(lines, start=after + 1)
        )

    def events_again(self) -> tuple[JsonMap, ...]:
        """Return every event, asked for anew."""
        return self.events(0)

    def final(self, job_id: str) -> JsonMap:
        """Return what became of the job."""
        view = self.job(job_id, job_id)
        results = self._hash("results")
        tasks = [
            {"task_id": t.task_id, "job_id": job_id, "state": t.state, "lease_id": t.lease_id,
             "attempts": t.attempts, "result": results.get(t.task_id)}
            for t in view.tasks
        ]  # fmt: skip
        job = {"job_id": job_id, "state": view.state}
        return {"job": job, "tasks": tasks, "artifacts": [], "metrics": None, "logs": ""}

    def store(self, key: str, data: bytes) -> Stored:
        """Refuse: a queue keeps no files."""
        del key, data
        return Stored(None, "a queue keeps no files")

    def fetch(self, key: str) -> str | None:
        """Give nothing."""
        del key

    def _ask(self, *words: str | int) -> Any:
        with self._lock:
            try:
                if self._redis is None:
                    port = self._containers.published(SERVER, PORT)
                    self._redis = Redis("127.0.0.1", port)
                return self._redis(*words)
            except (OSError, RuntimeError) as error:
                self._redis = None
                raise Unreachable(f"Redis: {error}") from error


def _event(number: int, job_id: str, told: dict[str, Any]) -> JsonMap:
    task, attempt = told["task"] or None, told["attempt"]
    return {
        "id": number,
        "type": told["type"],
        "job_id": job_id,
        "task_id": task,
        "lease_id": f"{task}:{attempt}" if task else None,
        "mono_ns": int(told["mono_ns"]),
        "boot_id": told["boot_id"],
        "data": told["data"] or {},
    }


class NoFiles:
    """The queue saves no checkpoints."""

    def committed(self, job_id: str, task_id: str) -> tuple[()]:
        """Return none."""
        del job_id, task_id
        return ()

    def tree(self, job_id: str, task_id: str) -> CheckpointTree:
        """Return an empty tree."""
        del job_id, task_id
        return CheckpointTree()


class DirectPath:
    """Nothing lies between the workers and the server: each worker has a path of its own name."""

    def __init__(self, containers: RunContainers) -> None:
        self._containers = containers

    def listener_of(self, container: Container) -> str:
        """Name the path of a worker."""
        return container.service

    def listeners(self) -> tuple[()]:
        """Return none: there is nothing that could be switched."""
        return ()

    def probe(self, listener: str, timeout_s: float) -> Probe:
        """Ask the server, whoever's path it is: all of them lead there."""
        del listener
        port = self._containers.published(SERVER, PORT)
        return Probe(**canary("127.0.0.1", port, timeout_s))


class QueuePackets(NamespacePackets):
    """Packet rules as in any container; whether they bite is asked in Redis's own protocol."""

    def __init__(self, client: DockerClient, run_id: str) -> None:
        super().__init__(client, run_id, absent("Toxiproxy"))

    def canaries(
        self, container: Container, listener: str, times: int, timeout_s: float
    ) -> tuple[Canary, ...]:
        """Ask the server from inside a worker's container."""
        del listener
        script = CANARIES.format(SERVER, PORT, timeout_s, times)
        with explained(f"canaries in {container.service}"):
            asked = self._client.api.exec_create(container.container_id, ["python3", "-c", script])
            told = self._client.api.exec_start(asked["Id"])
        return tuple(Canary(**each) for each in json.loads(told))


class QueueMachine(DockerMachine):
    """This machine with the queue on it; undo, heal and audit go by label, as they always do."""

    def images(self, planted: str | None) -> Mapping[str, str]:
        """Return the digest of the one image."""
        del planted
        return {IMAGE: str(self._client.images.get(IMAGE).id)}

    def world(self, spec: RunSpec) -> World:
        """Return what a run may touch; faults at what is absent say so, and have missed."""
        client, containers = self._client, QueueContainers(self._client, spec.run_id)
        helper = Helper(client, spec.run_id, reach=Reach(volumes=(), network="none"))
        processes = RunProcesses(client, spec.run_id, containers, helper)
        return World(
            stack=QueueStack(client, spec, containers),
            containers=containers,
            network=absent("Toxiproxy", DirectPath(containers)),
            files=absent("checkpoint volume", NoFiles()),
            runtime=QueueRuntime(containers),
            disks=absent("volumes of its own"),
            processes=processes,
            clocks=absent("clocks of its own"),
            packets=QueuePackets(client, spec.run_id),
            logs=EngineLogs(client, containers),
            images=absent("recorded saves"),
            signs=absent("signs"),
            tracers=EngineTracers(client, spec.run_id, containers, processes),
        )
