"""Placeholders in the arguments of a command. Pure."""

import re
from collections.abc import Iterable

from pydantic import JsonValue

from flashruntime.errors import InvalidInput
from flashruntime.protocol.base import strict_dumps
from flashruntime.protocol.jobs import Params


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
