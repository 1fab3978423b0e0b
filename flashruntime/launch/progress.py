"""What a job says about its progress: the step file, metrics.json, the tail of its output."""

import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flashruntime.launch.files import open_regular
from flashruntime.protocol.tasks import Metrics

MAX_STEP_FILE_BYTES = 4096
MAX_METRICS_BYTES = 1024 * 1024
MAX_INTEGER_DIGITS = 15
TAIL_BYTES = 16 * 1024
TAIL_LINES = 100


@dataclass(frozen=True, slots=True)
class Progress:
    """The steps that an attempt has reached, has resumed from, and has last committed."""

    step: int | None = None
    resumed_from: int | None = None
    checkpoint_step: int | None = None


def read_progress(path: Path) -> Progress:
    """Return what the step file says; nothing if it is missing or malformed."""
    try:
        with open_regular(path) as file:
            fields = json.loads(file.read(MAX_STEP_FILE_BYTES))
    except (OSError, ValueError, RecursionError):
        return Progress()
    if not isinstance(fields, dict):
        return Progress()
    return Progress(*map(_step, map(fields.get, ("step", "resumed_from", "checkpoint_step"))))


def _step(value: Any) -> int | None:
    is_step = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 2**53
    return value if is_step else None


def parse_metrics(path: Path) -> tuple[Metrics | None, list[str]]:
    """Return the metrics of a file and warnings about what was left out.

    NaN and Infinity become null, integers of more than 15 digits become text, nested values are
    left out. Anything but one flat JSON object gives None and the reason.
    """
    try:
        with open_regular(path) as file:
            content = file.read(MAX_METRICS_BYTES + 1)
        if len(content) > MAX_METRICS_BYTES:
            return None, [f"{path.name} is larger than {MAX_METRICS_BYTES} bytes"]
        text = content.decode("utf-8-sig", "replace")
        value = json.loads(text, parse_int=_integer, parse_float=_number, parse_constant=_null)
    except (OSError, ValueError, RecursionError) as error:
        return None, [f"{path.name} is not JSON: {error}"]
    if not isinstance(value, dict):
        return None, [f"{path.name} must hold one JSON object, not a {type(value).__name__}"]
    nested = [name for name, item in value.items() if isinstance(item, dict | list)]
    warnings = [f"{path.name}: {_valid(name)!r} is not a plain value" for name in nested]
    flat = {_valid(name): _plain(item) for name, item in value.items() if name not in nested}
    return flat, warnings


def _integer(digits: str) -> int | str:
    return int(digits) if len(digits) <= MAX_INTEGER_DIGITS else digits


def _number(text: str) -> float | None:
    number = float(text)
    return number if math.isfinite(number) else None


def _null(_: str) -> None:
    return None


def _plain(value: Any) -> Any:
    return _valid(value) if isinstance(value, str) else value


def _valid(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def log_tail(path: Path, lines: int = TAIL_LINES, most_bytes: int = TAIL_BYTES) -> str:
    """Return the last lines of an output file, of a rewritten line only its last state.

    Reads from the end, and never more than `most_bytes`.
    """
    size_bytes, content = TAIL_BYTES, b""
    try:
        with open_regular(path) as file:
            length = file.seek(0, os.SEEK_END)
            while True:
                size_bytes = min(size_bytes, most_bytes)
                file.seek(max(0, length - size_bytes))
                content = file.read(size_bytes)
                if content.count(b"\n") > lines or size_bytes >= min(length, most_bytes):
                    break
                size_bytes *= 4
    except OSError:
        return ""
    text = content.decode("utf-8", "replace").replace("\0", "\ufffd").replace("\r\n", "\n")
    shown = [line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n")]
    ended = shown[-1] == ""
    return "\n".join(shown[-max(lines, 0) - ended :]) if lines > 0 else ""
