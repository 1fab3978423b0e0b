"""The base of every wire model, and strict JSON."""

import json
import unicodedata
from functools import lru_cache
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints

MAX_KEY_BYTES = 1024
MAX_SEGMENT_BYTES = 255
_ENCODER = json.JSONEncoder(allow_nan=False, sort_keys=True, separators=(",", ":"))


class WireModel(BaseModel):
    """Frozen; unknown fields are refused, so that a typing error is never silently ignored."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class OpenModel(BaseModel):
    """Frozen; unknown fields from newer or foreign clients are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


Sha256 = Annotated[str, StringConstraints(to_lower=True, pattern=r"^[0-9a-fA-F]{64}$")]
Name = Annotated[
    str, StringConstraints(min_length=1, max_length=256, pattern=r"^[^\x00-\x1f\x7f]+$")
]
NodeId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]


@lru_cache(4_096)
def check_key(key: str) -> str:
    """Return `key` if it is a safe relative object key, else raise ValueError naming the rule.

    A key is NFC-normalised text without control characters, backslash, percent sign or U+FFFD:
    no composed and decomposed twins, nothing that a second decoding could change.
    """
    if not key or len(key.encode("utf-8", "surrogatepass")) > MAX_KEY_BYTES:
        raise ValueError(f"key must have 1 to {MAX_KEY_BYTES} bytes")
    if unicodedata.normalize("NFC", key) != key or not key.isprintable():
        raise ValueError(f"key {key!r} must be printable and in Unicode form NFC")
    if any(character in key for character in "\\%\ufffd"):
        raise ValueError(f"key {key!r} contains a backslash, a percent sign or U+FFFD")
    for segment in key.split("/"):
        if segment in {"", ".", ".."}:
            raise ValueError(f"key {key!r} has an empty, '.' or '..' segment")
        if len(segment.encode()) > MAX_SEGMENT_BYTES:
            raise ValueError(f"key {key!r} has a segment of more than {MAX_SEGMENT_BYTES} bytes")
    return key


ObjectKey = Annotated[str, AfterValidator(check_key)]


def strict_dumps(value: Any) -> str:
    """Compact JSON with sorted keys; NaN and Infinity raise ValueError."""
    return _ENCODER.encode(value)
