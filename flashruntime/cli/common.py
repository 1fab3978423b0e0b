"""What the verbs share: how they find the coordinator, and how they print."""

import os
import re
import unicodedata
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from flashruntime import config
from flashruntime.errors import InvalidInput
from flashruntime.sdk.journal import RUN_NAME

if TYPE_CHECKING:
    from flashruntime.client import CoordinatorClient

JOB_HELP = "a job id, or the output directory of a local run"
URL_VARIABLE = "FLASHML_COORDINATOR_URL"


def add_coordinator(parser: ArgumentParser) -> None:
    """Add the option `--coordinator`."""
    parser.add_argument(
        "--coordinator",
        metavar="URL",
        help=f"address of the coordinator (default: ${URL_VARIABLE})",
    )


def url_of(args: Namespace) -> str | None:
    """Return the address of the coordinator that was named, None if none was."""
    return named_url(args) or os.environ.get(URL_VARIABLE) or None


def named_url(args: Namespace) -> str | None:
    """Return the value of `--coordinator`; InvalidInput if it is no address."""
    given: str | None = args.coordinator
    if given and (problem := config.url_problem(given)) is not None:
        raise InvalidInput(f"--coordinator {config.without_password(given)!r} {problem}")
    return given or None


def local_run(args: Namespace) -> Path | None:
    """Return the output directory that was given in place of a job id, None if it is none."""
    place = Path(args.job)
    return place if args.coordinator is None and (place / RUN_NAME).is_file() else None


def connect(args: Namespace, parser: ArgumentParser) -> "CoordinatorClient":
    """Return a client of the coordinator that was named; exit with 2 if none was."""
    from flashruntime.client import CoordinatorClient  # noqa: PLC0415 (needs the extra `client`)

    url = url_of(args)
    if not url:
        parser.error(
            f"name a coordinator with --coordinator URL or ${URL_VARIABLE}, e.g. "
            f"{config.DEFAULT_COORDINATOR_URL}; `flashruntime serve` starts one"
        )
    url = config.coordinator_url({URL_VARIABLE: url})
    return CoordinatorClient(url, token=config.token_source())


def at_least(minimum: int) -> Callable[[str], int]:
    """Return a reader of whole numbers for an option."""

    def read(text: str) -> int:
        if not re.fullmatch(r"-?[0-9]{1,18}", text) or int(text) < minimum:
            raise ArgumentTypeError(f"{text!r} must be a whole number of at least {minimum}")
        return int(text)

    return read


def duration_s(text: str) -> float:
    """Return the seconds, above 0, that an option states."""
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?|\.[0-9]{1,9}", text) or float(text) <= 0:
        raise ArgumentTypeError(f"{text!r} must be a number of seconds above 0")
    return float(text)


def plain(text: str | None) -> str:
    """Return text for one line of a terminal: control characters become spaces."""
    return "".join(
        " " if unicodedata.category(character) in {"Cc", "Cf", "Zl", "Zp"} else character
        for character in text or ""
    )


def table(rows: list[list[str]]) -> str:
    """Return rows as aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    padded = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
    return "\n".join(padded)


def size_text(size_bytes: int) -> str:
    """Return a size in the largest unit that keeps it above 1."""
    size = float(size_bytes)
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"
