"""From the words of a command line to a JobSpec."""

import json
import re
from argparse import Namespace
from pathlib import Path, PurePath
from typing import Any

from pydantic import ValidationError

from flashruntime.errors import InvalidInput
from flashruntime.protocol import argv
from flashruntime.protocol.jobs import (
    CommandParameters,
    CommandWorkload,
    InputFile,
    JobMetadata,
    JobSection,
    JobSpec,
    Outputs,
    Params,
    RetryPolicy,
)

_FLAGS: dict[int | str, str] = {
    "lease_seconds": "--lease-seconds",
    "no_progress_s": "--no-progress",
    "env": "--env",
    "required": "--output",
    "task_params": "--task-params",
    "name": "--name",
    "resources": "--need",
    "node_selector": "--need",
}
_NEEDS = {"cpus": "cpus", "memory": "memory_bytes", "accelerators": "accelerators"}
_LABEL = "label."
_AMOUNT = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,3})?)(?:([KMGT])(?:i?B)?)?")
_PYTHON = re.compile(r"python[0-9.]*")
_FLAG = re.compile(r"-[bBdEiIOPqsSuvx]+")


def split(words: list[str]) -> list[str]:
    """Return the argv of a command: one word is split as a POSIX shell would, several are kept.

    Raises InvalidInput if splitting would drop a backslash, or if nothing is left to run.
    """
    if len(words) == 1:
        return argv.split(words[0])
    if not words or not words[0].strip():
        raise InvalidInput("the command is empty; name what to run, e.g. 'python train.py'")
    return words


def default_name(command: list[str]) -> str:
    """Return the name of a job that was given none: of the script that Python runs, or the program.

    An option of Python that takes a value ends the search.
    """
    program = PurePath(command[0]).name or command[0]
    if _PYTHON.fullmatch(program):
        words = (word for word in command[1:] if not _FLAG.fullmatch(word))
        script = PurePath(next(words, ""))
        if script.suffix == ".py":
            return script.name
    return program


def pairs(options: list[str], name: str) -> dict[str, str]:
    """Return `KEY=VALUE` options as a dict; InvalidInput names one that is not."""
    found: dict[str, str] = {}
    for option in options:
        key, equals, value = option.partition("=")
        if not equals or not key:
            raise InvalidInput(f"{name} {option!r} must be KEY=VALUE")
        if key in found:
            raise InvalidInput(
                f"{name} {key!r} is given twice; use --task-params for several tasks"
            )
        found[key] = value
    return found


def task_params(args: Namespace) -> list[Params] | None:
    """Return the parameters of each task: of one from --param, of many from --task-params."""
    if args.param and args.task_params:
        raise InvalidInput("give either --param or --task-params, not both")
    if args.param:
        return [dict(pairs(args.param, "--param"))]
    if args.task_params is None:
        return None
    try:
        found = json.loads(Path(args.task_params).read_bytes())
    except OSError as error:
        raise InvalidInput(f"--task-params {args.task_params}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"--task-params {args.task_params} is not JSON: {error}") from error
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise InvalidInput(f"--task-params {args.task_params} must hold a list of JSON objects")
    return found


def needs(options: list[str]) -> dict[str, Any]:
    """Return the fields `resources` and `node_selector` from `--need` options."""
    amounts: dict[str, float | int] = {}
    selector: dict[str, str] = {}
    for key, value in pairs(options, "--need").items():
        if key.startswith(_LABEL):
            selector[key.removeprefix(_LABEL)] = value
            continue
        found = _AMOUNT.fullmatch(value)
        is_broken = key == "accelerators" and "." in value
        if key not in _NEEDS or found is None or is_broken or (found[2] and key != "memory"):
            raise InvalidInput(
                f"--need '{key}={value}' must be cpus=N, memory=N (bytes, or with K, M, G, T for "
                "powers of 1024), accelerators=N, or label.KEY=VALUE"
            )
        number = float(found[1]) * 1024 ** " KMGT".index(found[2] or " ")
        amounts[_NEEDS[key]] = number if key == "cpus" else int(number)
    return {"resources": amounts, "node_selector": selector}


def job_spec(args: Namespace, command: list[str], inputs: list[InputFile]) -> JobSpec:
    """Return the JobSpec of a submission; InvalidInput names the field that breaks a rule."""
    required = list(dict.fromkeys(args.output))
    optional = [path for path in Outputs().optional if path not in required]
    try:
        parameters = CommandParameters(
            command=command,
            env=pairs(args.env, "--env"),
            inputs=inputs,
            task_params=task_params(args),
            outputs=Outputs(required=required, optional=optional),
            lease_seconds=args.lease_seconds,
            no_progress_s=args.no_progress,
            **needs(args.need),
        )
        return JobSpec(
            apiVersion="flashml.dev/v1alpha1",
            kind="Job",
            metadata=JobMetadata(name=args.name or default_name(command)),
            spec=JobSection(
                workload=CommandWorkload(type="command", parameters=parameters),
                retryPolicy=RetryPolicy(maxTaskAttempts=args.max_restarts + 1),
            ),
        )
    except ValidationError as error:
        first = error.errors()[0]
        raise InvalidInput(f"{_flag(first['loc'], args)}: {first['msg']}") from error


def _flag(place: tuple[int | str, ...], args: Namespace) -> str:
    """Return the option that a field of the spec is made from, with its value where it has one."""
    flag = next((_FLAGS[part] for part in place if part in _FLAGS), None)
    if flag is None:
        return ".".join(map(str, place))
    given = getattr(args, flag.removeprefix("--").replace("-", "_"), None)
    return f"{flag} {given!r}" if isinstance(given, str | float) else flag
