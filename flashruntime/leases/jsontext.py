"""Strict JSON and valid Unicode from whatever a job or a client sent."""

from pydantic import BaseModel, JsonValue
from pydantic_core import PydanticSerializationError

from flashruntime.errors import InvalidInput
from flashruntime.protocol.base import strict_dumps


def clean(text: str) -> str:
    """Return `text` with each lone surrogate replaced by U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _clean_json(value: JsonValue) -> JsonValue:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [_clean_json(item) for item in value]
    if isinstance(value, dict):
        return {clean(key): _clean_json(item) for key, item in value.items()}
    return value


def dumps(value: JsonValue, what: str) -> str:
    """Return `value` as strict JSON; `what` names it in the InvalidInput for NaN or Infinity."""
    try:
        text = strict_dumps(value)
        return strict_dumps(_clean_json(value)) if "\\ud" in text else text
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{what} is not strict JSON: {error}") from error


def dump_model(model: BaseModel) -> str:
    """Return a wire model as strict JSON."""
    try:
        return model.model_dump_json()
    except PydanticSerializationError:
        return dumps(model.model_dump(mode="json"), type(model).__name__)
