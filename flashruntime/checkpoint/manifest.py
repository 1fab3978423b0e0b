"""Names of steps and parts, and the manifest as bytes: sealed when written, checked when read."""

import hashlib
import json
import operator
import re
from typing import Any

from pydantic import TypeAdapter, ValidationError

from flashruntime.errors import CheckpointError, InvalidInput
from flashruntime.protocol.base import strict_dumps
from flashruntime.protocol.checkpoints import MAX_PART_BYTES, Manifest, PartKey

MANIFEST_NAME = "manifest.json"
MAX_MANIFEST_BYTES = 32 * 1024 * 1024
MAX_STEP = 10**15
_STEP_NAME = re.compile(r"step-([0-9]{6,16})")
_PART_KEY: TypeAdapter[str] = TypeAdapter(PartKey)


def check_step(step: object) -> int:
    """Return `step` as an int; NumPy integers count, booleans and fractions do not."""
    try:
        number = -1 if isinstance(step, bool) else operator.index(step)  # type: ignore[arg-type]
    except TypeError:
        number = -1
    if not 0 <= number <= MAX_STEP:
        raise InvalidInput(f"step must be an integer from 0 to {MAX_STEP}, not {step!r}")
    return number


def step_name(step: int) -> str:
    """Return the only directory name that step `step` can have."""
    return f"step-{step:06d}"


def parse_step_name(name: str) -> int | None:
    """Return the step that the directory name stands for; a second spelling of one is None."""
    match = _STEP_NAME.fullmatch(name)
    step = int(match[1]) if match else -1
    return step if 0 <= step <= MAX_STEP and step_name(step) == name else None


def check_part_keys(keys: list[str]) -> None:
    """Raise InvalidInput unless `keys` can name the parts of one checkpoint."""
    for key in keys:
        try:
            _PART_KEY.validate_python(key)
        except ValidationError as error:
            raise InvalidInput(
                f"part key {key!r} must be 1 to 200 of A-Z a-z 0-9 . _ - and start with a letter "
                "or digit, so that it is one plain file name everywhere"
            ) from error
    folded = {key.casefold() for key in keys}
    if len(folded) != len(keys) or MANIFEST_NAME in folded:
        raise InvalidInput(f"part keys must differ in more than case, none may be {MANIFEST_NAME}")


def check_part_size(key: str, size_bytes: int) -> None:
    """Raise InvalidInput unless a part may have this size."""
    if not 1 <= size_bytes <= MAX_PART_BYTES:
        raise InvalidInput(
            f"part {key!r} has {size_bytes} bytes, it must have 1 to {MAX_PART_BYTES}; "
            "leave out what is empty, split what is larger (flashruntime.checkpoint.split)"
        )


def seal(fields: dict[str, Any]) -> bytes:
    """Return the bytes of a JSON object with the digest of `fields` added to them."""
    return strict_dumps({**fields, "digest": _digest(fields)}).encode() + b"\n"


def unseal(data: bytes) -> dict[str, Any]:
    """Return the JSON object in `data`; CheckpointError unless it carries its own digest."""
    try:
        content = json.loads(
            data.decode("utf-8"), object_pairs_hook=_distinct, parse_constant=_no_constant
        )
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"is not strict JSON: {error}") from error
    if not isinstance(content, dict):
        raise CheckpointError("is not a JSON object")
    stated = content.pop("digest", None)
    if stated != _digest(content):
        raise CheckpointError("does not match the digest that it states of itself")
    return {**content, "digest": stated}


def decode(data: bytes) -> Manifest:
    """Return the manifest in `data`; CheckpointError says what is wrong with it."""
    content = unseal(data)
    try:
        return Manifest.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(item) for item in first["loc"])
        raise CheckpointError(f"breaks the format at {place!r}: {first['msg']}") from error


def _digest(content: dict[str, Any]) -> str:
    try:
        return hashlib.sha256(strict_dumps(content).encode("utf-8")).hexdigest()
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"has no canonical form: {error}") from error


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) != len(pairs):
        raise ValueError("a key occurs twice")
    return content


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
