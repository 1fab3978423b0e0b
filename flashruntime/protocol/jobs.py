"""Jobs: what a user submits and what the coordinator answers."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, JsonValue, field_validator

from flashruntime.protocol.base import Name, ObjectKey, OpenModel, Sha256, WireModel
from flashruntime.protocol.placement import PlacedParameters

MAX_TASKS = 100_000
DEFAULT_LEASE_S = 30.0
ProgressLimit = Annotated[float, Field(ge=0.1, le=604_800)]
LeaseSeconds = Annotated[float, Field(ge=0.5, le=86_400)]
ParamName = Annotated[str, Field(min_length=1, max_length=256)]
Params = dict[ParamName, JsonValue]


class JobState(StrEnum):
    """Life of a job."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"

    @property
    def terminal(self) -> bool:
        """Whether the job has ended."""
        return self in {JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED}


class InputFile(WireModel):
    """A file that the worker places at `path` in the attempt's directory before it starts."""

    path: ObjectKey
    key: ObjectKey
    sha256: Sha256
    executable: bool = False


def _placeable(inputs: list[InputFile]) -> list[InputFile]:
    paths = {file.path for file in inputs}
    if len(paths) < len(inputs):
        raise ValueError("two inputs have one path; give each file a path of its own")
    for path in paths:
        above = path.rpartition("/")[0]
        while above:
            if above in paths:
                raise ValueError(f"input {path!r} lies below {above!r}, which is a file")
            above = above.rpartition("/")[0]
    return inputs


Inputs = Annotated[list[InputFile], AfterValidator(_placeable)]


class Outputs(WireModel):
    """Files to collect from the attempt's directory: `required` must exist, `optional` may."""

    required: list[ObjectKey] = []
    optional: list[ObjectKey] = ["metrics.json"]


class Checkpoints(WireModel):
    """Checkpoint options of a task."""

    keep: int = Field(default=3, ge=1, le=2**53)


def _runnable(command: list[str]) -> list[str]:
    if not command[0].strip():
        raise ValueError("command[0] must name an executable, it is empty")
    if any("\0" in word for word in command):
        raise ValueError("command must not contain a NUL byte")
    return command


Argv = Annotated[list[str], Field(min_length=1, max_length=10_000), AfterValidator(_runnable)]


class CommandParameters(PlacedParameters):
    """Parameters of the workload type `command`: an argv list, never a shell line.

    An attempt that neither prints nor steps for `no_progress_s` is ended: it hangs.
    """

    command: Argv
    env: dict[str, str] = {}
    inputs: Inputs = []
    task_params: list[Params] | None = Field(default=None, min_length=1, max_length=MAX_TASKS)
    checkpoint: Checkpoints = Checkpoints()
    outputs: Outputs = Outputs()
    lease_seconds: LeaseSeconds = DEFAULT_LEASE_S
    no_progress_s: ProgressLimit | None = None

    @field_validator("env")
    @classmethod
    def _environment(cls, env: dict[str, str]) -> dict[str, str]:
        for key, value in env.items():
            if not key or "=" in key or "\0" in key + value:
                raise ValueError(
                    f"env {key!r}: a name is not empty and has no '='; no NUL anywhere"
                )
        return env


class SearchParameters(PlacedParameters):
    """Parameters of `hyperparameter_search`: one task for each trial of `trials` or of `grid`."""

    trials: list[Params] | None = Field(default=None, min_length=1, max_length=MAX_TASKS)
    grid: dict[ParamName, Annotated[list[JsonValue], Field(min_length=1)]] | None = Field(
        default=None, min_length=1
    )
    command: Argv | None = None
    inputs: Inputs = []
    lease_seconds: LeaseSeconds = DEFAULT_LEASE_S
    no_progress_s: ProgressLimit | None = None

    @field_validator("grid")
    @classmethod
    def _bounded(cls, grid: dict[str, list[JsonValue]] | None) -> dict[str, list[JsonValue]] | None:
        size = 1
        for values in (grid or {}).values():
            size *= len(values)
        if size > MAX_TASKS:
            raise ValueError(f"grid has {size} trials, the limit is {MAX_TASKS}")
        return grid


class CommandWorkload(WireModel):
    """Run a command, once or once for each of `task_params`."""

    type: Literal["command"]
    parameters: CommandParameters


class SearchWorkload(WireModel):
    """Run one task for each trial of a search."""

    type: Literal["hyperparameter_search"]
    parameters: SearchParameters


class Execution(WireModel):
    """How tasks are given out; `leases` is the only backend."""

    backend: Literal["leases"] = "leases"


class Image(OpenModel):
    """The image that the caller expects its workers to run; recorded, not pulled."""

    repository: str = "flashruntime/runtime"
    tag: str = "local"


class RetryPolicy(WireModel):
    """Bounds on repeating a failed task; lost workers and preemptions are not counted here."""

    maxTaskAttempts: int = Field(default=3, strict=True, ge=1, le=1_000)  # noqa: N815 (wire name)


class ArtifactPolicy(WireModel):
    """Where committed artifacts appear."""

    outputPrefix: ObjectKey = "outputs"  # noqa: N815 (wire name)


class JobMetadata(OpenModel):
    """Name of a job."""

    name: Name


class JobSection(WireModel):
    """Section `spec` of a JobSpec."""

    execution: Execution = Execution()
    image: Image = Image()
    workload: Annotated[CommandWorkload | SearchWorkload, Field(discriminator="type")]
    retryPolicy: RetryPolicy = RetryPolicy()  # noqa: N815 (wire name)
    artifacts: ArtifactPolicy = ArtifactPolicy()


class JobSpec(WireModel):
    """A submission."""

    apiVersion: Literal["flashml.dev/v1alpha1"]  # noqa: N815 (wire name)
    kind: Literal["Job"]
    metadata: JobMetadata
    spec: JobSection


class JobRecord(OpenModel):
    """A job as the coordinator sees it; `tasks` counts its tasks by state.

    A list of jobs leaves `spec` out, which may hold the parameters of 100,000 tasks.
    `waiting_for` says what its waiting tasks ask for where no node that is alive offers that.
    """

    job_id: str
    name: str
    state: JobState
    reason: str | None = None
    created_at: datetime
    finished_at: datetime | None = None
    tasks: dict[str, int] = {}
    waiting_for: str | None = None
    spec: JobSpec | None = None


class JobPage(OpenModel):
    """A page of jobs, newest first; pass `next` as `after` for the page that follows."""

    items: list[JobRecord]
    next: str | None = None
