"""From a job to what each of its tasks runs. Pure."""

import re
from collections.abc import Iterable
from itertools import product

from pydantic import JsonValue

from flashruntime.errors import InvalidInput
from flashruntime.protocol.base import strict_dumps
from flashruntime.protocol.jobs import (
    CommandParameters,
    JobSpec,
    Params,
    SearchParameters,
)
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
    size_bytes = len(base.model_dump_json()) * len(trials)
    if size_bytes > MAX_EXPANDED_BYTES:
        raise InvalidInput(
            f"{len(trials)} tasks with this command, env and inputs need {size_bytes} bytes, the "
            f"limit is {MAX_EXPANDED_BYTES}; move what they share into an input file"
        )
    return tuple(_payload(base, params) for params in trials)


def substitute(command: Iterable[str], params: Params) -> list[str]:
    """Replace `{name}` in each argument where `name` is a key of `params`.

    Text is put in as it is, any other value as JSON. Every other brace is literal. Raises
    InvalidInput for a key that no argument uses and for a value that no argument can hold.
    """
    if not params:
        return list(command)
    pattern = re.compile("{(" + "|".join(map(re.escape, params)) + ")}")
    used: set[str] = set()

    def value_of(match: re.Match[str]) -> str:
        used.add(match[1])
        return _text(match[1], params[match[1]])

    filled = [pattern.sub(value_of, argument) for argument in command]
    if unused := [key for key in params if key not in used]:
        raise InvalidInput(
            f"parameter {unused[0]!r} is used by no argument of the command; write "
            f"'{{{unused[0]}}}' where its value belongs, or remove it"
        )
    return filled


def _trials(parameters: CommandParameters | SearchParameters) -> list[Params]:
    if isinstance(parameters, CommandParameters):
        return [{}] if parameters.task_params is None else parameters.task_params
    if (parameters.trials is None) == (parameters.grid is None):
        raise InvalidInput("hyperparameter_search needs either 'trials' or 'grid', and not both")
    if parameters.grid is None:
        return parameters.trials or []
    keys, values = list(parameters.grid), parameters.grid.values()
    return [dict(zip(keys, combination, strict=True)) for combination in product(*values)]


def _base(kind: str, parameters: CommandParameters | SearchParameters) -> TaskPayload:
    if isinstance(parameters, CommandParameters):
        return TaskPayload(
            type=kind,
            command=parameters.command,
            env=parameters.env,
            inputs=parameters.inputs,
            outputs=parameters.outputs,
            checkpoint=parameters.checkpoint,
        )
    return TaskPayload(type=kind, command=parameters.command, inputs=parameters.inputs)


def _payload(base: TaskPayload, params: Params) -> TaskPayload:
    command = None if base.command is None else substitute(base.command, params)
    return base.model_copy(update={"command": command, "params": params})


def _text(key: str, value: JsonValue) -> str:
    text = value if isinstance(value, str) else strict_dumps(value)
    if "\0" in text:
        raise InvalidInput(f"parameter {key!r} contains a NUL byte, which no argument can hold")
    return text
