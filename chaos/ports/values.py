"""What adapters tell the harness, and what a stack is built for."""

from collections.abc import Mapping
from dataclasses import dataclass, field


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
class Canary:
    """One request whose answer was read to its end, on a connection that both sides keep.

    `outcome` as in `Probe`; `reads` counts in how many pieces the answer came.
    """

    outcome: str
    elapsed_s: float
    sent_bytes: int = 0
    received_bytes: int = 0
    reads: int = 0


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
class Stored:
    """What the coordinator said to an upload: its status, and why it refused it, if it did.

    `status` is None where no answer came. `retry_after_s` is what a refusal asks for, else 0.
    """

    status: int | None
    refused: str | None = None
    retry_after_s: float = 0.0


@dataclass(frozen=True, slots=True)
class RunSpec:
    """What a stack is built for; `planted` names a deliberately broken build of the runtime.

    `limits_mib` gives volumes a size of their own (volume -> MiB); where any has one, all have.
    `variants` name what is different about its containers: "clock" (their wall clocks can be set),
    "supervised" (workers are restarted below an init), "restarts" (the engine restarts them),
    "relay" (checkpoints go through the coordinator).
    """

    run_id: str
    workers: int
    planted: str | None = None
    limits_mib: Mapping[str, int] = field(default_factory=dict)
    variants: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A step directory on the volume, verified by hash.

    `state` is valid, torn or corrupt; "committed" where only the manifest was looked at.
    """

    step: int
    state: str
    attempt_id: str | None = None
    manifest_id: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Takeover:
    """What the lineage of a tree says: an attempt took over a manifest (None: a fresh start)."""

    attempt_id: str
    manifest_id: str | None
    step: int | None


@dataclass(frozen=True, slots=True)
class CheckpointTree:
    """The checkpoint tree of a task, as it lies on the volume."""

    checkpoints: tuple[Checkpoint, ...] = ()
    lineage: tuple[Takeover, ...] = ()
