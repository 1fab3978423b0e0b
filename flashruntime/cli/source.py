"""A source directory as the inputs of a job: every file by its digest, links inside it only."""

import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from flashruntime.errors import InvalidInput
from flashruntime.launch.source import SKIPPED
from flashruntime.protocol.base import check_key
from flashruntime.protocol.jobs import InputFile

if TYPE_CHECKING:
    from flashruntime.client import CoordinatorClient

MAX_FILES = 10_000


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file to upload."""

    path: str
    place: Path
    size_bytes: int
    executable: bool


def scan(root: Path) -> list[SourceFile]:
    """Return the files below `root` in order.

    Raises InvalidInput for what cannot be sent: links that leave the tree or lead to directories,
    special files, names that are no object keys, too many files.
    """
    if not root.is_dir():
        raise InvalidInput(f"--source {root} is not a directory; name one that holds the code")
    found: list[SourceFile] = []
    for place in _walk(root):
        found.append(_file(root, place))
        if len(found) > MAX_FILES:
            raise InvalidInput(
                f"--source {root} holds more than {MAX_FILES} files; name the directory of the "
                "code alone, and give workers the data in another way"
            )
    return found


def upload(client: "CoordinatorClient", files: list[SourceFile]) -> list[InputFile]:
    """Upload the files, each content once."""
    inputs: list[InputFile] = []
    sent: set[str] = set()
    for file in files:
        try:
            digest = _send(client, file.place, sent)
        except OSError as error:
            text = f"{file.place} cannot be read: {error.strerror}"
            raise InvalidInput(f"{text}; make it readable or remove it") from error
        key = f"inputs/{digest}"
        inputs.append(InputFile(path=file.path, key=key, sha256=digest, executable=file.executable))
    return inputs


def _send(client: "CoordinatorClient", place: Path, sent: set[str]) -> str:
    """Upload a file unless its content is among `sent`; return its digest."""
    with place.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    if digest not in sent:
        record = client.put_artifact(f"inputs/{digest}", place)
        if record.sha256 != digest:
            raise InvalidInput(f"{place} changed while it was uploaded; submit again")
        sent.add(digest)
    return digest


def _walk(root: Path) -> Iterator[Path]:
    for directory, names, files in os.walk(root, onerror=_refuse):
        here = Path(directory)
        for name in names:
            if name not in SKIPPED and (here / name).is_symlink():
                raise InvalidInput(f"{here / name} is a link to a directory; copy or remove it")
        names[:] = sorted(name for name in names if name not in SKIPPED)
        yield from (here / name for name in sorted(files) if not name.endswith(".pyc"))


def _refuse(error: OSError) -> None:
    raise InvalidInput(f"{error.filename} cannot be read: {error.strerror}") from error


def _file(root: Path, place: Path) -> SourceFile:
    try:
        path = check_key(place.relative_to(root).as_posix())
    except ValueError as error:
        raise InvalidInput(f"{place}: {error}; rename or move it") from error
    try:
        resolved = place.resolve(strict=True)
        status = resolved.stat()
    except OSError as error:
        raise InvalidInput(f"{place} cannot be read: {error.strerror}; remove it") from error
    if place.is_symlink() and not resolved.is_relative_to(root.resolve()):
        raise InvalidInput(f"{place} is a link that leaves {root}; copy the file or remove it")
    if not stat.S_ISREG(status.st_mode):
        raise InvalidInput(f"{place} is not a regular file; remove it from the source")
    return SourceFile(path, resolved, status.st_size, bool(status.st_mode & stat.S_IXUSR))
