"""From a job to what each of its tasks runs. Pure."""

from collections.abc import Sequence
from itertools import product
from math import prod

from pydantic import JsonValue

from flashruntime.errors import InvalidInput
from flashruntime.protocol.argv import substitute
from flashruntime.protocol.base import strict_dumps
from flashruntime.protocol.jobs import (
    CommandParameters,
    JobSpec,
    Params,
    SearchParameters,
)
from flashruntime.protocol.placement import PlacedParameters, Resources
from flashruntime.protocol.tasks import TaskPayload

MAX_EXPANDED_BYTES = 512 * 1024 * 1024


def expand(spec: JobSpec) -> tuple[TaskPayload, ...]:
    """Return the payload of every task of `spec`, in order.

    Raises InvalidInput where parameters and command do not fit together.
    """
    workload = spec.spec.workload
    parameters = workload.parameters
    trials = _trials(parameters)
    base = _base(workload.type, parameters)
    shared_bytes = len(base.model_dump_json()) * len(trials)
    _check_size(trials, shared_bytes)
    filled_bytes = _filled_bytes(base.command or (), trials)
    _check_size(trials, shared_bytes + _combined_bytes(parameters) + filled_bytes)
    return tuple(_payload(base, params) for params in trials)


def _trials(parameters: CommandParameters | SearchParameters) -> list[Params]:
    if isinstance(parameters, CommandParameters):
        return [{}] if parameters.task_params is None else parameters.task_params
    if (parameters.trials is None) == (parameters.grid is None):
        raise InvalidInput("hyperparameter_search needs either 'trials' or 'grid', and not both")
    if parameters.grid is None:
        return parameters.trials or []
    keys, values = list(parameters.grid), parameters.grid.values()
    return [dict(zip(keys, combination, strict=True)) for combination in product(*values)]


def _check_size(trials: Sequence[Params], size_bytes: int) -> None:
    if size_bytes > MAX_EXPANDED_BYTES:
        raise InvalidInput(
            f"{len(trials)} tasks with this command, env, inputs and parameters need {size_bytes} "
            f"bytes, the limit is {MAX_EXPANDED_BYTES}; move what they share into an input file"
        )


def _combined_bytes(parameters: CommandParameters | SearchParameters) -> int:
    """Return how many bytes the values of a grid take in all of its combinations."""
    grid = getattr(parameters, "grid", None) or {}
    trials = prod(map(len, grid.values()))
    return sum(trials // len(values) * sum(map(_bytes, values)) for values in grid.values())


def _filled_bytes(command: Sequence[str], trials: list[Params]) -> int:
    """Return how many bytes the values take at most in the places that the command has for them."""
    places: dict[str, int] = {}
    size_bytes = 0
    for params in trials:
        for key, value in params.items():
            if key not in places:
                places[key] = sum(argument.count(f"{{{key}}}") for argument in command)
            size_bytes += places[key] * _bytes(value)
    return size_bytes


def _bytes(value: JsonValue) -> int:
    return len(strict_dumps(value))


def _base(kind: str, parameters: CommandParameters | SearchParameters) -> TaskPayload:
    if isinstance(parameters, CommandParameters):
        return TaskPayload(
            type=kind,
            command=parameters.command,
            env=parameters.env,
            inputs=parameters.inputs,
            outputs=parameters.outputs,
            checkpoint=parameters.checkpoint,
            no_progress_s=parameters.no_progress_s,
            resources=_asked(parameters),
        )
    return TaskPayload(
        type=kind,
        command=parameters.command,
        inputs=parameters.inputs,
        no_progress_s=parameters.no_progress_s,
        resources=_asked(parameters),
    )


def _asked(parameters: PlacedParameters) -> Resources | None:
    return parameters.resources if parameters.resources != Resources() else None


def _payload(base: TaskPayload, params: Params) -> TaskPayload:
    command = None if base.command is None else substitute(base.command, params)
    return base.model_copy(update={"command": command, "params": params})
