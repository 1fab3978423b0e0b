"""Checkpoints: the manifest as it lies on disk and travels, and the coordinator's catalogue."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field, JsonValue, StringConstraints, field_validator

from flashruntime.protocol.base import OpenModel, Sha256, WireModel

PartKey = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,199}$")]
Step = Annotated[int, Field(strict=True, ge=0, le=10**15)]
MAX_PART_BYTES = 64 * 1024 * 1024


class Part(OpenModel):
    """One part file of a checkpoint: a plain name, never a path."""

    key: PartKey
    sha256: Sha256
    size_bytes: int = Field(strict=True, ge=1, le=MAX_PART_BYTES)


class Manifest(OpenModel):
    """Declares a checkpoint complete; `digest` covers every other field."""

    schema_version: Literal["v1alpha1"] = "v1alpha1"
    manifest_id: str
    job_id: str
    attempt_id: str
    step: Step
    framework: str
    world_size: int = Field(ge=1, le=2**53)
    compatible_world_sizes: list[int]
    parts: list[Part] = Field(min_length=1, max_length=100_000)
    validation: Literal["hash_verified", "restore_verified"] = "hash_verified"
    created: datetime
    checkpoint_duration_s: float = Field(ge=0)
    metadata: dict[str, JsonValue] = {}
    digest: Sha256

    @field_validator("parts")
    @classmethod
    def _distinct(cls, parts: list[Part]) -> list[Part]:
        keys = [part.key.casefold() for part in parts]
        if len(set(keys)) != len(keys) or "manifest.json" in keys:
            raise ValueError(
                "part keys must differ in more than case, and none may be 'manifest.json'"
            )
        return parts


@dataclass(frozen=True, slots=True)
class TaskName:
    """A task as a path names it: by its job, and by its index there or its own id."""

    job_id: str
    task: str


class TakenOver(OpenModel):
    """The checkpoint that an attempt starts from."""

    step: Step
    manifest_id: str


LeaseName = Annotated[str, Field(min_length=1, max_length=256)]
ManifestName = Annotated[str, Field(min_length=1, max_length=256)]


class PartSize(WireModel):
    """The bytes of a part, by what they hash to."""

    sha256: Sha256
    size_bytes: int = Field(strict=True, ge=1, le=MAX_PART_BYTES)


class PartsRequest(WireModel):
    """Announce the parts of the next checkpoint of an attempt."""

    lease_id: LeaseName
    parts: list[PartSize] = Field(min_length=1, max_length=100_000)


class PartsAnswer(OpenModel):
    """Which of the announced parts the store does not have."""

    missing: list[Sha256]


class CommitRequest(WireModel):
    """Commit a checkpoint of an attempt, of which it says from what it went on itself."""

    lease_id: LeaseName
    manifest: dict[str, JsonValue]
    takes_over: TakenOver | None = None


class SetAsideRequest(WireModel):
    """Tell that a checkpoint verifies and is of no use."""

    lease_id: LeaseName
    manifest_id: ManifestName
    reason: Annotated[str, Field(max_length=4_000)]


class CheckpointRecord(OpenModel):
    """A checkpoint in the catalogue; `set_aside` is why it is not resumed from, if it is not."""

    task_id: str
    manifest_id: str
    step: int
    lease_id: str
    attempt_number: int
    parts: int
    size_bytes: int
    committed_at: datetime
    set_aside: str | None = None


class CheckpointPage(OpenModel):
    """All checkpoints that the catalogue keeps of a task, newest first."""

    items: list[CheckpointRecord]


class Succession(OpenModel):
    """An attempt that has committed checkpoints, and the one that it took over itself."""

    lease_id: str
    attempt_number: int
    takes_over: TakenOver | None


class LatestCheckpoint(OpenModel):
    """The checkpoint to resume a task from, if there is one, with its manifest.

    `lineage` holds the attempts that committed, in their order; `set_aside` the checkpoints that
    are of no use, wherever a copy of them lies.
    """

    checkpoint: CheckpointRecord | None = None
    manifest: dict[str, JsonValue] | None = None
    lineage: list[Succession] = []
    set_aside: list[TakenOver] = []


class LostWork(OpenModel):
    """Steps of a task that are or would be computed again.

    `reported_step` is the last one that its newest attempt told, `checkpoint_step` the one that a
    next attempt would go on from (`stored`: it is in the coordinator's store). `would_recompute`
    is the distance of the two, `recomputed` what earlier losses have cost already.
    """

    task_id: str
    reported_step: int | None
    checkpoint_step: int | None
    stored: bool
    would_recompute: int
    recomputed: int
