"""Everything that one run may touch: one protocol a concern, as narrow as its users allow."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from chaos.model import Container, JobRequest, JobView, JsonMap, Target
from chaos.ports.disks import Disks
from chaos.ports.images import DiskImages
from chaos.ports.logs import Logs
from chaos.ports.packets import Packets
from chaos.ports.processes import Clocks, Processes
from chaos.ports.signs import Signs
from chaos.ports.tracers import Tracers
from chaos.ports.values import (
    Canary,
    Checkpoint,
    CheckpointTree,
    Death,
    Probe,
    Stored,
    Toxic,
    WriteWindow,
)


class Containers(Protocol):
    """The containers of one run."""

    def of_node(self, node_id: str) -> Container:
        """Return the container of a worker; raise NoTarget where there is none."""
        ...

    def coordinator(self) -> Container:
        """Return the coordinator's container."""
        ...

    def proxy(self) -> Container:
        """Return the container of Toxiproxy itself."""
        ...

    def kill(self, container: Container, signal: str = "SIGKILL") -> None:
        """Send a signal through the engine (SIGKILL also where it is paused)."""
        ...

    def pause(self, container: Container) -> None:
        """Freeze it as it is; `start` and `kill` both end that."""
        ...

    def get_ready_to_kill(self) -> None:
        """Start what `kill_frozen` needs, so that it takes no time then."""
        ...

    def kill_frozen(self, container: Container) -> None:
        """Kill what is paused: no process of it does anything more, not even while it dies."""
        ...

    def start(self, container: Container) -> None:
        """Start it where it is not running."""
        ...

    def wait_death(self, container: Container, since_ns: int, timeout_s: float) -> Death | None:
        """Return its first death after `since_ns`, None where there is none in time."""
        ...


class Network(Protocol):
    """Toxiproxy, the only path between workers and coordinator."""

    def listener_of(self, container: Container) -> str:
        """Return the name of the listener that is this container's only path."""
        ...

    def listeners(self) -> tuple[str, ...]:
        """Return the names of the listeners that are enabled; raise CannotRun without an answer."""
        ...

    def add(self, listener: str, toxic: Toxic) -> None:
        """Switch a toxic on and read it back; raise CannotRun where it is not there."""
        ...

    def remove(self, listener: str, name: str) -> None:
        """Switch a toxic off and read back that it is gone; a missing one is fine."""
        ...

    def toxics(self) -> Mapping[str, tuple[Toxic, ...]]:
        """Return what is switched on, by listener; listeners without toxics are left out."""
        ...

    def probe(self, listener: str, timeout_s: float) -> Probe:
        """Make one request through the listener, on a new connection."""
        ...

    def canary(self, listener: str, timeout_s: float, pad_bytes: int = 0) -> Canary:
        """Make one request, longer by about `pad_bytes`, and read its answer to the end.

        Also where the listener is down, or Toxiproxy itself.
        """
        ...

    def switch(self, listener: str, *, on: bool) -> None:
        """Enable or disable a listener and read that back; disabling closes its connections."""
        ...

    def renew(self, listener: str) -> None:
        """Close every connection of a listener and open it again at once, without toxics."""
        ...


class Files(Protocol):
    """The checkpoint volume of one run, reached through a helper container."""

    def committed(self, job_id: str, task_id: str) -> tuple[Checkpoint, ...]:
        """Return the steps that have a manifest, by step, without hashing (state "committed").

        Polled about once a second throughout a run, so it must be cheap.
        """
        ...

    def tree(self, job_id: str, task_id: str) -> CheckpointTree:
        """Return the tree of a task, every step verified by hash."""
        ...

    def staged_parts(self, job_id: str, task_id: str, attempt_id: str, step: int) -> JsonMap:
        """Return {"parts": names with sizes, "manifest": bool, "committed": bool} of one save."""
        ...

    def wait_write_window(
        self, target: Target, min_step: int, timeout_s: float
    ) -> WriteWindow | None:
        """Return at once when the target itself saves a step >= `min_step`: parts, no manifest."""
        ...


class Runtime(Protocol):
    """The system under test, as its users see it; raises Unreachable where it gives no answer."""

    def ready(self) -> bool:
        """Whether the coordinator takes requests."""
        ...

    def nodes(self) -> tuple[str, ...]:
        """Return the ids of the workers that hold their sessions open."""
        ...

    def submit(self, role: str, request: JobRequest) -> str:
        """Upload the files, submit the job and return its id.

        A role that is submitted again is the same job, for it has the same idempotency key.
        """
        ...

    def accepted(self) -> tuple[str, ...]:
        """Return the ids of all jobs that the coordinator has, whoever submitted them."""
        ...

    def job(self, role: str, job_id: str) -> JobView:
        """Return the job with its task, or with its tasks where it has several."""
        ...

    def events(self, after: int) -> tuple[JsonMap, ...]:
        """Return the coordinator's events with an id above `after`, in order, as JSON."""
        ...

    def events_again(self) -> tuple[JsonMap, ...]:
        """Ask anew for every event of the submitted jobs, and return them in order, as JSON."""
        ...

    def final(self, job_id: str) -> JsonMap:
        """Return {"job", "tasks", "artifacts", "metrics", "logs"} of a job, as JSON.

        Of several tasks each has its own metrics and no logs are returned.

        Every artifact is {"key", "sha256", "size_bytes", "accepted", "bytes_sha256"}, the last
        one counted from the downloaded bytes (None where they cannot be read).
        """
        ...

    def store(self, key: str, data: bytes) -> Stored:
        """Upload bytes once, and return what was said to that; never raises for a refusal."""
        ...

    def fetch(self, key: str) -> str | None:
        """Return the sha256 of what a download of a key gave, None where it was refused."""
        ...


class Stack(Protocol):
    """The composed stack of one run."""

    def up(self) -> None:
        """Start it and return when its containers run; raise CannotRun with the remedy."""
        ...

    def unsteady(self) -> tuple[str, ...]:
        """Return what is not as it should be: not ready, a worker missing, a toxic, a probe."""
        ...

    def save_logs(self, folder: Path) -> None:
        """Write the log of every container to a file in `folder`."""
        ...

    def addresses(self) -> Mapping[str, str]:
        """Return what people may want to open: coordinator, toxiproxy, compose project."""
        ...


@dataclass(frozen=True, slots=True)
class World:
    """Everything that one run may touch."""

    stack: Stack
    containers: Containers
    network: Network
    files: Files
    runtime: Runtime
    disks: Disks
    processes: Processes
    clocks: Clocks
    packets: Packets
    logs: Logs
    images: DiskImages
    signs: Signs
    tracers: Tracers
