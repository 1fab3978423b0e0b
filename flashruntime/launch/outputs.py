"""Which files of an ended attempt are its outputs; symlinks are never followed."""

import hashlib
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from flashruntime.launch.progress import parse_metrics
from flashruntime.protocol.base import check_key
from flashruntime.protocol.jobs import Outputs
from flashruntime.protocol.tasks import Metrics

METRICS_NAME = "metrics.json"


@dataclass(frozen=True, slots=True)
class Places:
    """Where an attempt leaves files: FLASHML_OUTPUT_DIR and the working directory."""

    output: Path
    files: Path


@dataclass(frozen=True, slots=True)
class Placed:
    """An input as it was before the process started."""

    sha256: str
    signature: tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Collected:
    """Outputs that are there, and for each required one that is not, why."""

    found: dict[str, Path]
    problems: list[str]


def collect(outputs: Outputs, places: Places, placed: Mapping[str, Placed]) -> Collected:
    """Find the outputs: first in FLASHML_OUTPUT_DIR, then in the working directory.

    An input that the process left as it was is not an output.
    """
    found: dict[str, Path] = {}
    problems: list[str] = []
    for path in dict.fromkeys([*outputs.required, *outputs.optional]):
        place, why = _find(path, places, placed)
        if place is not None:
            found[path] = place
        elif path in outputs.required:
            problems.append(f"{path}: {why}")
    return Collected(found, problems)


def read_metrics(places: Places, placed: Mapping[str, Placed]) -> tuple[Metrics | None, list[str]]:
    """Return the metrics that this attempt has written, and warnings."""
    place, _ = _find(METRICS_NAME, places, placed)
    return (None, []) if place is None else parse_metrics(place)


def _find(path: str, places: Places, placed: Mapping[str, Placed]) -> tuple[Path | None, str]:
    check_key(path)
    why = "not found"
    for root in (places.output, places.files):
        problem = _problem(root, path)
        if problem is None and root == places.files:
            problem = _why_unchanged(root, path, placed)
        if problem is None:
            return root / path, ""
        why = problem if problem != "not found" else why
    return None, why


def _problem(root: Path, path: str) -> str | None:
    """Say why `path` below `root` is no output, None if it is one."""
    place = root.parent
    for segment in (root.name, *path.split("/")):
        place /= segment
        try:
            mode = place.lstat().st_mode
        except OSError as error:
            missing = isinstance(error, FileNotFoundError | NotADirectoryError)
            return "not found" if missing else str(error.strerror)
        if stat.S_ISLNK(mode):
            return (
                f"{place.relative_to(root.parent)} is a symbolic link, and links are not followed"
            )
    return None if stat.S_ISREG(mode) else "not a regular file; name files, not directories"


def _why_unchanged(root: Path, path: str, placed: Mapping[str, Placed]) -> str | None:
    """Say why a file counts as an input still, None if the process has written it."""
    before = placed.get(path)
    try:
        if before is None or signature(root / path) != before.signature:
            return None
        with (root / path).open("rb") as file:
            same = hashlib.file_digest(file, "sha256").hexdigest() == before.sha256.lower()
    except OSError as error:
        return f"an input that cannot be read any more ({error.strerror or error})"
    return "an input that the process did not change" if same else None


def signature(path: Path) -> tuple[int, int, int]:
    """Return what changes when a file is written or replaced."""
    status = path.lstat()
    return status.st_ino, status.st_mtime_ns, status.st_size
