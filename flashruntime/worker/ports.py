"""What the agent needs from the outside: the coordinator's calls, and tools to work with."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from flashruntime.launch.spec import Launcher
from flashruntime.protocol.checkpoints import (
    CheckpointRecord,
    CommitRequest,
    LatestCheckpoint,
    Part,
    PartsRequest,
    SetAsideRequest,
    TaskName,
)
from flashruntime.protocol.nodes import NodeHeartbeat, NodeRecord, NodeRegistered, NodeRegistration
from flashruntime.protocol.tasks import (
    ArtifactRecord,
    ClaimRequest,
    CompleteAnswer,
    CompleteRequest,
    FailAnswer,
    FailRequest,
    HeartbeatRequest,
    Lease,
    LeaseStatus,
)
from flashruntime.session_stream import SessionLines


class Coordinator(Protocol):
    """The coordinator's calls that a worker makes; `flashruntime.client` has them over HTTP."""

    def register(self, registration: NodeRegistration) -> NodeRegistered:
        """Introduce the worker."""
        ...

    def node_heartbeat(self, node_id: str, beat: NodeHeartbeat | None = None) -> NodeRecord:
        """Send the worker's sign of life."""
        ...

    def session(self, node_id: str, session_id: str) -> AbstractContextManager[SessionLines]:
        """Hold a session open."""
        ...

    def claim(self, request: ClaimRequest) -> Lease | None:
        """Ask for a task."""
        ...

    def heartbeat(self, lease_id: str, request: HeartbeatRequest | None = None) -> LeaseStatus:
        """Renew a lease."""
        ...

    def append_log(self, lease_id: str, offset: int, data: bytes) -> int:
        """Append output of an attempt; return how much the coordinator has."""
        ...

    def complete(self, lease_id: str, request: CompleteRequest) -> CompleteAnswer:
        """Hand in a result."""
        ...

    def fail(self, lease_id: str, request: FailRequest) -> FailAnswer:
        """Report a failure."""
        ...

    def put_artifact(self, key: str, source: Path | bytes) -> ArtifactRecord:
        """Upload an object."""
        ...

    def get_artifact(self, key: str, to: Path, sha256: str | None = None) -> ArtifactRecord:
        """Download an object into a file."""
        ...


class CheckpointCalls(Protocol):
    """The coordinator's calls that relaying makes; `CheckpointClient` has them over HTTP."""

    def announce(self, name: TaskName, request: PartsRequest) -> Sequence[str]:
        """Announce the parts of the next checkpoint; return the digests to be sent."""
        ...

    def put_part(self, name: TaskName, lease_id: str, part: Part, content: Iterator[bytes]) -> None:
        """Send the bytes of an announced part."""
        ...

    def commit(self, name: TaskName, request: CommitRequest) -> CheckpointRecord:
        """Commit a checkpoint whose parts have been sent."""
        ...

    def latest(self, name: TaskName, skip: Sequence[str]) -> LatestCheckpoint:
        """Return the checkpoint to resume from, without those to skip."""
        ...

    def set_aside(self, name: TaskName, request: SetAsideRequest) -> CheckpointRecord:
        """Tell that a checkpoint is of no use."""
        ...

    def get_part(self, name: TaskName, part: Part, to: Path) -> None:
        """Download a part into a file, verified."""
        ...


@dataclass(frozen=True, slots=True)
class Tools:
    """What an attempt works with; `connect` opens a further client with a timeout in seconds.

    With `checkpoints`, those of attempts go through the coordinator's store.
    """

    client: Coordinator
    connect: Callable[[float], AbstractContextManager[Coordinator]]
    launcher: Launcher
    checkpoints: CheckpointCalls | None = None
