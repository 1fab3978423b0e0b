"""The result document `bench_v1`: what a run of the suite measured, with every raw sample.

Strict JSON: no NaN, no Infinity; what has no number has null and a reason. Times of day are labels
only, durations come from CLOCK_MONOTONIC.
"""

import os
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

Number = Annotated[float, Field(allow_inf_nan=False)]
Text = Annotated[str, Field(min_length=1)]
NOT_ON_TARGET = "does not run on the target"


class BenchError(Exception):
    """The benchmark suite failed."""


class UsageError(BenchError):
    """The command line asks for something that there is not."""


class Unavailable(BenchError):
    """What should be measured is not there; the reason goes into the notes, never a number."""


class Section(StrEnum):
    """Which of the two tables a scenario stands in."""

    PERFORMANCE = "performance"
    RESILIENCE = "resilience"


class Target(StrEnum):
    """Where a scenario runs: in processes of this machine, or on the composed stack."""

    LOCAL = "local"
    COMPOSE = "compose"


class Better(StrEnum):
    """Which direction of a figure is good."""

    LOWER = "lower"
    HIGHER = "higher"


class Value(BaseModel):
    """Frozen; unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Host(Value):
    """The machine as the measured processes saw it: effective cores and memory, not the metal's."""

    os: Text
    cpu: Text
    cores: Annotated[int, Field(ge=1)]
    ram_gb: Annotated[Number, Field(gt=0)]
    python: Text
    torch: str | None
    flashruntime: Text
    kernel: Text
    load_1m: Number | None
    gpu: str | None
    disk: Text
    commit: str | None
    place: Text


class Interval(Value):
    """Between which two events a duration lies, and how finely their times are known."""

    start: Text
    end: Text
    resolution_s: Annotated[Number, Field(ge=0)] = 0.0


class Series(Value):
    """A named quantity with its raw samples, in the order in which they were taken."""

    name: Text
    unit: Text
    samples: list[Number]
    median: Number | None
    p10: Number | None
    p90: Number | None


class Comparison(Value):
    """Ours against a comparator of the same run: `difference` is ours minus theirs, signed."""

    comparator: Text
    paired: bool
    difference: Number
    ci_low: Number
    ci_high: Number
    p_value: Annotated[Number, Field(ge=0, le=1)]
    significant: bool
    ratio: Number | None
    finding: Text


class Row(Value):
    """One measured figure of a scenario; `variant` tells several rows of one scenario apart."""

    scenario: Text
    variant: str = ""
    section: Section
    target: Target
    hypothesis: Text
    method: Text
    interval: Interval | None
    unit: Text
    better: Better
    median: Number | None
    p10: Number | None
    p90: Number | None
    reason: str | None = None
    repeats: Annotated[int, Field(ge=0)]
    samples: list[Number]
    comparators: dict[str, Number]
    comparisons: list[Comparison] = []
    series: list[Series] = []
    notes: list[Text]
    wall_s: Annotated[Number, Field(ge=0)]

    @property
    def key(self) -> tuple[str, str]:
        """What the same figure of another document has in common with it."""
        return self.scenario, self.variant

    @model_validator(mode="after")
    def _numbers_or_reason(self) -> Self:
        if self.repeats != len(self.samples):
            raise ValueError(
                f"{self.scenario}: {self.repeats} repeats, {len(self.samples)} samples"
            )
        if (self.median is None) != (not self.samples):
            raise ValueError(f"{self.scenario}: a median needs samples, and samples have a median")
        if self.median is None and not self.reason:
            raise ValueError(f"{self.scenario}: a row without a number needs a reason")
        return self


class Broken(Value):
    """A scenario that ended with an error instead of its rows."""

    scenario: Text
    error: Text


class Document(Value):
    """One run of the suite; `complete` is false while it goes on and where it was interrupted."""

    model_config = ConfigDict(validate_by_name=True, serialize_by_alias=True)

    schema_: Literal["bench_v1"] = Field(default="bench_v1", alias="schema")
    host: Host
    started_at: datetime
    command: Text
    smoke: bool
    complete: bool
    wall_s: Annotated[Number, Field(ge=0)]
    rows: list[Row]
    broken: list[Broken] = []
    notes: list[Text] = []

    @model_validator(mode="after")
    def _rows_differ(self) -> Self:
        keys = [row.key for row in self.rows]
        if twice := sorted({" ".join(key) for key in keys if keys.count(key) > 1}):
            raise ValueError(f"several rows are called {twice[0]!r}; give them variants")
        return self


def load(path: Path) -> Document:
    """Read a document; UsageError names the file and what is wrong with it."""
    try:
        return Document.model_validate_json(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "document"
        raise UsageError(f"{path} is not a bench_v1 document: {where}: {first['msg']}") from error


def save(document: Document, path: Path) -> None:
    """Put a document at `path` in one step: a reader sees the old or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    scratch.write_text(document.model_dump_json(indent=1) + "\n", encoding="utf-8")
    scratch.replace(path)
