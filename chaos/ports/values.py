"""What adapters tell the harness, and what a stack is built for."""

from collections.abc import Mapping
from dataclasses import dataclass


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
class Flip:
    """A file of a checkpoint before and after a bit was flipped; `at_ns` is CLOCK_MONOTONIC."""

    manifest_id: str
    attempt_id: str
    path: str
    before_sha256: str
    after_sha256: str
    at_ns: int


@dataclass(frozen=True, slots=True)
class RunSpec:
    """What a stack is built for; `planted` names a deliberately broken build of the runtime."""

    run_id: str
    workers: int
    planted: str | None = None
