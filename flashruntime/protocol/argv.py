"""From a command line to an argv, and from placeholders to values. Pure."""

import re
import shlex
from collections.abc import Iterable

from pydantic import JsonValue

from flashruntime.errors import InvalidInput
from flashruntime.protocol.base import strict_dumps
from flashruntime.protocol.jobs import Params


def split(command: str) -> list[str]:
    """Return the argv of a command line as a POSIX shell would split it.

    Raises InvalidInput if splitting would drop a backslash, or if nothing is left to run.
    """
    try:
        argv = shlex.split(command)
    except ValueError as error:
        raise InvalidInput(f"the command {command!r} cannot be split: {error}") from error
    if sum(word.count("\\") for word in argv) != command.count("\\"):
        raise InvalidInput(
            f"a backslash in {command!r} would disappear when it is split; put the word in single "
            "quotes, or give the words as a list (on a command line: one by one, after --)"
        )
    if not argv or not argv[0].strip():
        raise InvalidInput("the command is empty; name what to run, e.g. 'python train.py'")
    return argv


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


def _text(key: str, value: JsonValue) -> str:
    text = value if isinstance(value, str) else strict_dumps(value)
    if "\0" in text:
        raise InvalidInput(f"parameter {key!r} contains a NUL byte, which no argument can hold")
    return text
