"""Where two checkpoints, or two values, differ: bit for bit, and by name. Needs no framework."""

import json
import math
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from flashruntime.checkpoint.files import Buffer
from flashruntime.checkpoint.store import Resume

MAX_SHOWN = 60
Place = tuple[object, ...]
Equal = Callable[[Any, Any], bool]


@dataclass(frozen=True, slots=True)
class Difference:
    """`what` names the thing, `detail` says how the second differs from the first.

    A stream of random numbers is apart: nothing may have seeded it, and nothing may draw from it.
    """

    what: str
    detail: str
    is_stream: bool = False


@dataclass(frozen=True, slots=True)
class Comparison:
    """The differences between two checkpoints, and what was compared where there are none.

    `hint` says where to look when something differs, but no stream of random numbers does.
    """

    differences: list[Difference]
    facts: list[str]
    hint: str = ""


class Absent:
    """Stands for what only the other side has."""

    def __repr__(self) -> str:
        return "absent"


ABSENT = Absent()


def same_bits(first: Any, second: Any) -> bool:
    """Return whether two plain values are the same; 0.0 is not -0.0, 1 not True; NaN is any NaN."""
    if type(first) is not type(second):
        return False
    if isinstance(first, float):
        both_nan = math.isnan(first) and math.isnan(second)
        return both_nan or struct.pack("d", first) == struct.pack("d", second)
    return bool(first == second)


def walk(
    first: Any, second: Any, equal: Equal = same_bits, place: Place = ()
) -> Iterator[tuple[Place, Any, Any]]:
    """Yield each place at which two nested values differ, with what is there on either side."""
    if isinstance(first, dict) and isinstance(second, dict):
        for key in [*first, *(key for key in second if key not in first)]:
            pair = first.get(key, ABSENT), second.get(key, ABSENT)
            yield from walk(*pair, equal, (*place, key))
    elif isinstance(first, list | tuple) and type(first) is type(second):
        for index in range(max(len(first), len(second))):
            pair = _item(first, index), _item(second, index)
            yield from walk(*pair, equal, (*place, index))
    elif not equal(first, second):
        yield place, first, second


def compare_values(what: str, first: Any, second: Any) -> list[Difference]:
    """Return the differences of two values that JSON can hold; `what` names them."""
    return [
        Difference(".".join(map(str, (what, *place))), f"{shown(there)} instead of {shown(here)}")
        for place, here, there in walk(first, second)
    ]


def compare_parts(first: Resume, second: Resume) -> Comparison:
    """Compare part by part; inside of a part that is JSON, value by value."""
    differences: list[Difference] = []
    for key in sorted(first.parts.keys() | second.parts.keys()):
        name = f"part {key}"
        here, there = first.parts.get(key), second.parts.get(key)
        if here is None or there is None:
            which = "absent" if there is None else "there, though the undisturbed run has none"
            differences.append(Difference(name, which))
        elif here != there:
            differences += _within(name, here, there)
    size_bytes = sum(map(len, first.parts.values()))
    return Comparison(differences, [f"{len(first.parts)} parts, {size_bytes} bytes"])


def same_parts(first: Mapping[str, Buffer], second: Mapping[str, Buffer]) -> bool:
    """Return whether two checkpoints consist of the same bytes."""
    return first.keys() == second.keys() and all(first[key] == second[key] for key in first)


def shown(value: object) -> str:
    """Return a value as text that fits into a line."""
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 3]}..."


def _item(values: Any, index: int) -> Any:
    return values[index] if index < len(values) else ABSENT


def _within(name: str, first: bytearray, second: bytearray) -> list[Difference]:
    here, there = _json(first), _json(second)
    if here is not None and there is not None:
        found = compare_values(name, here, there)
        if found:
            return found
    if len(first) != len(second):
        return [Difference(name, f"{len(second)} bytes instead of {len(first)}")]
    at = next(i for i, pair in enumerate(zip(first, second, strict=True)) if pair[0] != pair[1])
    return [Difference(name, f"differs from byte {at} of {len(first)} on")]


def _json(data: bytearray) -> Any:
    """Return the JSON object or list in `data`, None if it holds none."""
    if not data.startswith((b"{", b"[")):
        return None
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None
