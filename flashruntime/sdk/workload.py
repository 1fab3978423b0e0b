"""What to run: a command, its source, its outputs, and one task for each set of parameters."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel as PydanticModel
from pydantic import BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from flashruntime.errors import InvalidInput
from flashruntime.protocol.argv import split, substitute
from flashruntime.protocol.base import ObjectKey
from flashruntime.protocol.jobs import Argv, Checkpoints, CommandParameters, Outputs, Params
from flashruntime.protocol.plain import plain

METRICS_NAME = "metrics.json"
Mode = Literal["auto", "command", "torchrun"]


class _Value(PydanticModel):
    """Frozen; a broken rule is an InvalidInput that names the field."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def __init__(self, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, (type(self).__name__, *first["loc"])))
            raise InvalidInput(f"{where}: {first['msg'].removeprefix('Value error, ')}") from error


class Source(_Value):
    """The directory with the code: each attempt works in a fresh copy of it.

    `exclude` are patterns of names or relative paths that are not copied (`data`, `*.pt`).
    """

    path: Path = Path()
    exclude: tuple[str, ...] = ()


class Resources(_Value):
    """What a task needs; more than one process makes it a torchrun job under mode="auto"."""

    nproc_per_node: int = Field(default=1, strict=True, ge=1, le=1024)
    nnodes: int = Field(default=1, strict=True, ge=1, le=1024)


def _name(path: str) -> str:
    if any(character in path for character in "*?"):
        raise ValueError(f"{path!r}: outputs are names of files, not patterns; list each file")
    return path


class OutputSpec(_Value):
    """Files to collect: those that are named must be there, the default one may.

    Names are relative to FLASHML_OUTPUT_DIR or the working directory and taken literally.
    """

    collect: tuple[Annotated[ObjectKey, BeforeValidator(_name)], ...] = (METRICS_NAME,)
    primary_metric: str | None = None
    maximize: bool = True

    def __init__(
        self,
        collect: Sequence[str] | None = None,
        primary_metric: str | None = None,
        maximize: bool = True,
    ) -> None:
        if isinstance(collect, str):
            raise InvalidInput(f"OutputSpec.collect must be a list of names; write [{collect!r}]")
        named = {} if collect is None else {"collect": tuple(collect)}
        super().__init__(primary_metric=primary_metric, maximize=maximize, **named)

    @property
    def files(self) -> Outputs:
        """Which files are required, and which are collected where they exist."""
        required = list(dict.fromkeys(self.collect)) if "collect" in self.model_fields_set else []
        return Outputs(required=required, optional=[METRICS_NAME])


def _source(value: object) -> object:
    if isinstance(value, str | Path):
        if "\0" in str(value):
            raise ValueError(f"{str(value)!r} contains a NUL byte, which no path can hold")
        return Source(path=Path(value))
    return value


def _outputs(value: object) -> object:
    if isinstance(value, list | tuple):
        return OutputSpec(value)
    if not isinstance(value, OutputSpec):
        raise ValueError(f"must be an OutputSpec or a list of names, not {value!r}")
    return value


def _command(value: object) -> list[str]:
    if isinstance(value, str):
        return split(value)
    if not isinstance(value, list | tuple):
        raise InvalidInput(f"CommandWorkload.command must be text or a list, not {value!r}")
    return list(value)


class CommandWorkload(_Value):
    """A command, run once, or once for each of `task_params`.

    A string is split as a POSIX shell would, but no shell runs it. `{name}` in an argument is
    replaced where `name` is a key of the params. Without output and without a new step for
    `no_progress_s` seconds, an attempt counts as hung. `warm` lets a Python script be forked from
    an interpreter that has imported its modules: from the first attempt on, never, or (None) where
    there are several attempts.
    """

    command: Argv
    source: Annotated[Source, BeforeValidator(_source)] = Source()
    env: dict[str, str] = {}
    outputs: Annotated[OutputSpec, BeforeValidator(_outputs)] = OutputSpec()
    task_params: list[Params] | None = Field(default=None, min_length=1, max_length=100_000)
    mode: Mode = "auto"
    checkpoint: Checkpoints = Checkpoints()
    resources: Resources = Resources()
    no_progress_s: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    warm: bool | None = None

    def __init__(  # noqa: PLR0917 (a public signature)
        self,
        command: str | Sequence[str],
        source: Source | str | Path = ".",
        env: Mapping[str, str] | None = None,
        outputs: OutputSpec | Sequence[str] | None = None,
        task_params: Sequence[Mapping[str, object]] | None = None,
        mode: Mode = "auto",
        checkpoint: Checkpoints | None = None,
        resources: Resources | None = None,
        no_progress_s: float | None = None,
        warm: bool | None = None,
    ) -> None:
        super().__init__(
            command=_command(command),
            source=source,
            env=_environment(env or {}),
            outputs=OutputSpec() if outputs is None else outputs,
            task_params=_task_params(task_params),
            mode=mode,
            checkpoint=checkpoint or Checkpoints(),
            resources=resources or Resources(),
            no_progress_s=no_progress_s,
            warm=warm,
        )
        for argv in (self.argv(params) for params in self.tasks):
            _PARAMETERS.validate_python(argv)

    @property
    def tasks(self) -> list[Params]:
        """The parameters of each task."""
        return [{}] if self.task_params is None else self.task_params

    @property
    def is_torchrun(self) -> bool:
        """Whether torchrun starts the command's ranks."""
        return self.mode == "torchrun" or (
            self.mode == "auto" and self.resources.nproc_per_node > 1
        )

    def argv(self, params: Params) -> list[str]:
        """Return the command of the task with these parameters."""
        return substitute(self.command, params)


_PARAMETERS: TypeAdapter[list[str]] = TypeAdapter(Argv)


def _environment(env: Mapping[str, str]) -> dict[str, str]:
    if not isinstance(env, Mapping):
        raise InvalidInput(f"CommandWorkload.env must map names to text, not {env!r}")
    try:
        return CommandParameters(command=["true"], env=dict(env)).env
    except ValidationError as error:
        raise InvalidInput(f"CommandWorkload.env: {error.errors()[0]['msg']}") from error


def _task_params(params: Sequence[Mapping[str, object]] | None) -> object:
    if params is None:
        return None
    is_list = isinstance(params, list | tuple)
    if not is_list or not all(isinstance(item, Mapping) for item in params):
        raise InvalidInput("CommandWorkload.task_params must be a list of dicts, one for each task")
    return [_finite(plain(item, f"task_params[{i}]"), item, i) for i, item in enumerate(params)]


def _finite(clean: object, given: Mapping[str, object], index: int) -> object:
    for name, value in given.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise InvalidInput(
                f"task_params[{index}][{name!r}] is {value}, which JSON has no word for; "
                f"give the text '{value}'"
            )
    return clean
