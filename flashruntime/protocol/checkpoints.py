"""The manifest of a checkpoint, as it lies on disk and travels."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field, JsonValue, StringConstraints, field_validator

from flashruntime.protocol.base import OpenModel, Sha256

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
    world_size: int = Field(ge=1)
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
