"""What can be done to the volumes of a run: damage to their files, no room, no right to write."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class Volume(StrEnum):
    """A volume of the composed stack."""

    CHECKPOINTS = "checkpoints"
    ARTIFACTS = "artifacts"
    LEDGER = "ledger"


class Mode(StrEnum):
    """What happens to the bytes of a file."""

    FLIP_BITS = "flip_bits"
    TRUNCATE = "truncate"
    DELETE = "delete"
    ZERO = "zero"
    SWAP = "swap"
    ROLL_BACK = "roll_back"
    GARBAGE_MANIFEST = "garbage_manifest"
    FOREIGN_FILE = "foreign_file"


@dataclass(frozen=True, slots=True)
class Hurt:
    """A file before and after, as a process of its own read it; None where there was no file."""

    path: str
    before_sha256: str | None
    after_sha256: str | None

    @property
    def changed(self) -> bool:
        """Whether other bytes are read now."""
        return self.before_sha256 != self.after_sha256


@dataclass(frozen=True, slots=True)
class HurtStep:
    """A committed checkpoint that was hit; it is as good as before unless `counts`."""

    step: int
    manifest_id: str
    attempt_id: str
    counts: bool
    files: tuple[Hurt, ...]


@dataclass(frozen=True, slots=True)
class HurtTree:
    """What became of a task's checkpoints; `at_ns` is CLOCK_MONOTONIC, taken when it was durable.

    `reason` says why nothing was touched, None where something was.
    """

    at_ns: int
    reason: str | None
    steps: tuple[HurtStep, ...] = ()


@dataclass(frozen=True, slots=True)
class HurtBlobs:
    """What became of stored artifacts: digest -> file; else as `HurtTree`."""

    at_ns: int
    reason: str | None
    blobs: tuple[tuple[str, Hurt], ...] = ()


@dataclass(frozen=True, slots=True)
class Room:
    """A volume after something was done to it.

    `errno` is the name of the error that a small durable write of the runtime's user got, None
    where it went well; `refused` says why nothing was done, as to a volume without a limit.
    """

    at_ns: int
    total_bytes: int
    free_bytes: int
    errno: str | None
    refused: str | None = None
    tries: int = 1


class Disks(Protocol):
    """The volumes of one run."""

    def hurt_checkpoints(
        self, job_id: str, task_id: str, mode: Mode, depth: int, choice: int
    ) -> HurtTree:
        """Damage the newest `depth` checkpoints of a task; `choice` picks file and place."""
        ...

    def hurt_artifact(self, digests: tuple[str, ...], mode: Mode, choice: int) -> HurtBlobs:
        """Damage the largest of these stored artifacts, and keep what it was."""
        ...

    def fill(self, volume: Volume) -> Room:
        """Leave no room on a volume that has a size of its own; again where room came back."""
        ...

    def set_read_only(self, volume: Volume, timeout_s: float) -> Room:
        """Make a volume that has a size of its own read-only for everybody."""
        ...

    def forbid(self, volume: Volume) -> Room:
        """Take the right to write to the volume's directories from their owner."""
        ...

    def probe(self, volume: Volume) -> Room:
        """Look at a volume and try to write to it."""
        ...
