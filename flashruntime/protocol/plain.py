"""Turning what user code hands over (NumPy scalars, 0-d tensors, NaN) into strict JSON values."""

import math
from collections.abc import Mapping

from pydantic import JsonValue

from flashruntime.errors import InvalidInput

MAX_DEPTH = 32
MAX_INT_BITS = 64
SCALARS = (bool, int, float, str, type(None))


def plain(value: object, where: str) -> JsonValue:
    """Return `value` as strict JSON: NaN and infinities become null, integers of more than 64 bits
    text, NumPy scalars and 0-d tensors numbers. Anything else raises InvalidInput naming `where`.
    """
    return _plain(value, where, 0)


def _plain(value: object, where: str, depth: int) -> JsonValue:
    if depth > MAX_DEPTH:
        raise InvalidInput(f"{where} is nested more than {MAX_DEPTH} deep; flatten it")
    if isinstance(value, Mapping):
        return {
            _key(key, where): _plain(item, f"{where}.{key}", depth + 1)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_plain(item, f"{where}[{i}]", depth + 1) for i, item in enumerate(value)]
    return _scalar(_unwrap(value), where)


def _key(key: object, where: str) -> str:
    if not isinstance(key, str):
        raise InvalidInput(f"{where} has the key {key!r}; keys must be text")
    return _text(key)


def _unwrap(value: object) -> object:
    """Return the Python number inside a NumPy scalar or a 0-d array or tensor."""
    item = getattr(value, "item", None)
    if isinstance(value, SCALARS) or not callable(item) or getattr(value, "shape", None) != ():
        return value
    return item()


def _scalar(value: object, where: str) -> JsonValue:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, int):
        return _integer(int(value), where)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    raise InvalidInput(
        f"{where} is a {type(value).__name__}, which JSON cannot hold; "
        "use numbers, text, booleans, None, lists and dicts"
    )


def _integer(value: int, where: str) -> JsonValue:
    if value.bit_length() < MAX_INT_BITS:
        return value
    try:
        return str(value)
    except ValueError as error:
        raise InvalidInput(f"{where} has too many digits: {error}") from error


def _text(value: str) -> str:
    return value.encode("utf-8", "replace").decode("utf-8")
