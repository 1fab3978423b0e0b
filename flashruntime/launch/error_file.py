"""What ended processes told of their errors: the hook's files, as fields of evidence."""

import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from flashruntime.launch.files import open_regular
from flashruntime.protocol.failures import ReportedError

MAX_ERROR_FILE_BYTES = 256 * 1024
MAX_RANKS_READ = 1024
MAX_CHAIN = 8
MAX_OTHERS = 16


def read_errors(path: Path | None) -> dict[str, Any]:
    """Return the fields of evidence that error files give, none if there is no readable file.

    `path` is the file of the error that counts; ranks leave theirs beside it.
    """
    main = None if path is None else _read(path)
    if path is None or main is None:
        return {}
    error, chain, members = main
    return {
        "members": members,
        "error_type": error.type_name,
        "message": error.message,
        "error_bases": error.bases,
        "errno": error.errno,
        "led_to_by": chain,
        "other_errors": _others(path, error),
    }


def _others(path: Path, main: ReportedError) -> list[ReportedError]:
    """The errors of further ranks, the first to fail first."""
    try:
        names = sorted(path.parent.glob(f"{path.name}.rank*"))[:MAX_RANKS_READ]
    except OSError:
        return []
    found = [each[0] for name in names if (each := _read(name)) is not None]
    others = [each for each in found if (each.rank, each.at_ns) != (main.rank, main.at_ns)]
    return sorted(others, key=lambda error: error.at_ns)[:MAX_OTHERS]


def _read(path: Path) -> tuple[ReportedError, list[ReportedError], list[ReportedError]] | None:
    try:
        with open_regular(path) as file:
            fields = json.loads(file.read(MAX_ERROR_FILE_BYTES))
        chain, members = fields.get("chain") or [], fields.get("members") or []
        return (
            _error(fields),
            [_error(each) for each in chain[-MAX_CHAIN:]],
            [_error(each) for each in members[:MAX_OTHERS]],
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _error(fields: dict[str, Any]) -> ReportedError:
    """Return an error from a file that a job may have written itself; ValueError, KeyError."""
    kind, message = fields["type"], fields["message"]
    if not isinstance(kind, str) or not isinstance(message, str):
        raise TypeError(kind)
    told = {name: fields[name] for name in ("errno", "explicit", "rank", "at_ns") if name in fields}
    bases = [_valid(str(name)) for name in (fields.get("bases") or [])[:32]]
    try:
        return ReportedError.model_validate(
            {"type_name": _valid(kind), "message": _valid(message), "bases": bases, **told}
        )
    except ValidationError:
        return ReportedError(type_name=_valid(kind)[:1_000], message=_valid(message)[:20_000])


def _valid(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
