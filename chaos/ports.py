"""What the harness needs from the world: one protocol a concern, as narrow as its users allow.

Adapters live in chaos.targets and raise `CannotRun` where the machine is at fault. Everything
here has an in-memory twin in the unit tests.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from chaos.history import History
from chaos.model import (
    Action,
    Audit,
    Checkpoint,
    CheckpointTree,
    Container,
    JobRequest,
    JobView,
    JsonMap,
    Observation,
    Receipt,
    Target,
    Undo,
    Verdict,
)


@dataclass(frozen=True, slots=True)
class Death:
    """The engine's word on the end of a container; `at_ns` is CLOCK_MONOTONIC."""

    exit_code: int
    at_ns: int


@dataclass(frozen=True, slots=True)
class Probe:
    """One new connection and request through a listener.

    `outcome` is ok, timeout, reset, refused, closed (ended without an answer) or error.
    """

    outcome: str
    elapsed_s: float


@dataclass(frozen=True, slots=True)
class Toxic:
    """A Toxiproxy toxic; `stream` is upstream or downstream, names are unique to their fault."""

    name: str
    type: str
    stream: str
    attributes: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class WriteWindow:
    """A save in progress: parts are being written and there is no manifest yet."""

    step: int
    seen_ns: int


@dataclass(frozen=True, slots=True)
class Flip:
    """A file of a checkpoint before and after a bit was flipped; `at_ns` is CLOCK_MONOTONIC."""

    manifest_id: str
    attempt_id: str
    path: str
    before_sha256: str
    after_sha256: str
    at_ns: int


class Containers(Protocol):
    """The containers of one run."""

    def of_node(self, node_id: str) -> Container:
        """Return the container of a worker; raise NoTarget where there is none."""
        ...

    def coordinator(self) -> Container:
        """Return the coordinator's container."""
        ...

    def kill(self, container: Container, signal: str = "SIGKILL") -> None:
        """Send a signal through the engine (SIGKILL also where it is paused)."""
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

    def flip_newest(self, job_id: str, task_id: str, seed: int) -> tuple[int, Flip]:
        """Flip bits of a part of the newest valid checkpoint; return its step and the file."""
        ...


class Runtime(Protocol):
    """The system under test, as its users see it; raises Unreachable where it gives no answer."""

    def ready(self) -> bool:
        """Whether the coordinator takes requests."""
        ...

    def nodes(self) -> tuple[str, ...]:
        """Return the ids of registered workers."""
        ...

    def submit(self, role: str, request: JobRequest) -> str:
        """Upload the files, submit the job and return its id."""
        ...

    def job(self, role: str, job_id: str) -> JobView:
        """Return the job with its task."""
        ...

    def events(self, after: int) -> tuple[JsonMap, ...]:
        """Return the coordinator's events with an id above `after`, in order, as JSON."""
        ...

    def final(self, job_id: str) -> JsonMap:
        """Return {"job", "tasks", "artifacts", "metrics", "logs"} of a job, as JSON.

        Every artifact is {"key", "sha256", "size_bytes", "accepted", "bytes_sha256"}, the last
        one counted from the downloaded bytes (None where they cannot be read).
        """
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


@dataclass(frozen=True, slots=True)
class RunSpec:
    """What a stack is built for; `planted` names a deliberately broken build of the runtime."""

    run_id: str
    workers: int
    planted: str | None = None


class Machine(Protocol):
    """The machine as a whole: before a run there is nothing else, and after its death too."""

    def images(self, planted: str | None) -> Mapping[str, str]:
        """Return image name -> digest of all that a run needs.

        Raise CannotRun with the remedy: engine, image missing, disk nearly full.
        """
        ...

    def world(self, spec: RunSpec) -> World:
        """Return the adapters for one run; starts nothing."""
        ...

    def runs(self) -> tuple[str, ...]:
        """Return the run ids found on labelled containers, networks and volumes."""
        ...

    def undo(self, undo: Undo) -> None:
        """Carry out one undo and verify it; a missing object is fine.

        `stack_down` (no args) removes every container, network and volume of the run; the other
        actions belong to the faults that promise them.
        """
        ...

    def audit(self, run_id: str) -> Audit:
        """Return what is left of a run."""
        ...


class Scene(Protocol):
    """What a fault may see and do while it fires."""

    @property
    def action(self) -> Action:
        """The scheduled fault."""
        ...

    @property
    def world(self) -> World:
        """What may be touched."""
        ...

    def target(self) -> Target:
        """Resolve the symbolic target now; raise NoTarget or NotOurs."""
        ...

    def observation(self) -> Observation:
        """Return the newest observation."""
        ...

    def wait(self, condition: Callable[[Observation], bool], timeout_s: float) -> bool:
        """Wait for an observation; never longer than the fault's own deadline allows."""
        ...

    def remaining_s(self) -> float:
        """Return the seconds left until the fault's deadline, never below 0."""
        ...

    def promise(self, action: str, args: JsonMap) -> None:
        """Put an undo on disk; call it before touching anything that `undo` did not cover."""
        ...

    def undo_now(self) -> None:
        """Carry out this fault's undos now; they are repeated, harmlessly, when healing."""
        ...

    def note(self, text: str, data: JsonMap) -> None:
        """Write a note to the history."""
        ...


class Fault(Protocol):
    """One kind of fault: `undo` is written to disk, then `fire`, then `receipt`.

    Modules in chaos.faults hold one as FAULT.
    """

    @property
    def kind(self) -> str:
        """Name of the fault, unique."""
        ...

    def undo(self, scene: Scene) -> tuple[tuple[str, JsonMap], ...]:
        """Return the undo steps as (action, args) for the target as it is now."""
        ...

    def fire(self, scene: Scene) -> JsonMap:
        """Act, and return what was done, to whom and when."""
        ...

    def receipt(self, scene: Scene, fired: JsonMap) -> Receipt:
        """Return the evidence that it landed, or that it did not."""
        ...


class Workload(Protocol):
    """The load of an experiment. Modules in chaos.workloads hold one as WORKLOAD."""

    @property
    def name(self) -> str:
        """Name of the workload, unique."""
        ...

    def jobs(self, seed: int) -> Mapping[str, JobRequest]:
        """Return role -> job, submitted in this order."""
        ...


@dataclass(frozen=True, slots=True)
class Invariant:
    """One property of a history: pure, so that a saved run can be judged again.

    `judge` returns a verdict with its reason; what it cannot decide is unknown, and so is a
    judge that crashes. Modules in chaos.invariants hold one as INVARIANT.
    """

    name: str
    judge: Callable[[History], tuple[Verdict, str]]
