"""The user's source directory, copied so that every attempt begins with the same fresh files."""

import fnmatch
import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from flashruntime.errors import InvalidInput

MAX_FILES = 20_000
MAX_BYTES = 2 * 1024**3
RUN_FILES = (".lock", "run.json", "journal.jsonl")
# fmt: off
SKIPPED = frozenset({
    ".git", ".hg", ".svn", ".venv", ".mypy_cache", ".pytest_cache", ".ruff_cache", "__pycache__",
    "node_modules", "flashruntime-data", "chaos-runs",
})
# fmt: on


@dataclass(frozen=True, slots=True)
class Tree:
    """A source directory; `left_out` are patterns of names, `inside` directories of our own."""

    root: Path
    left_out: tuple[str, ...] = ()
    inside: tuple[Path, ...] = ()

    def copy(self, to: Path) -> None:
        """Copy the files to `to`, which is made; links stay links, to where they led.

        Raises InvalidInput for a source that is no directory or too large to copy.
        """
        if not self.root.is_dir():
            raise InvalidInput(f"source {self.root} is not a directory; name one with the code")
        to.mkdir(parents=True)
        size_bytes = 0
        for files, place in enumerate(self._walk(to), 1):
            if not place.is_symlink():
                size_bytes += place.lstat().st_size
            if files > MAX_FILES or size_bytes > MAX_BYTES:
                raise InvalidInput(
                    f"source {self.root} holds more than {MAX_FILES} files or "
                    f"{MAX_BYTES // 1024**3} GiB; name the directory of the code alone, leave data "
                    "out with Source(exclude=[...]), or reach it by a link or an absolute path"
                )
            self._copy(place, to / place.relative_to(self.root))

    def _walk(self, to: Path) -> Iterator[Path]:
        own = {path.resolve() for path in (*self.inside, to)}
        for directory, names, files in os.walk(self.root, onerror=_refuse):
            here = Path(directory)
            kept = [name for name in names if self._wants(here / name)]
            links = [name for name in kept if (here / name).is_symlink()]
            names[:] = [
                name
                for name in kept
                if name not in links
                and (here / name).resolve() not in own
                and not _is_run(here / name)
            ]
            for name in names:
                (to / here.relative_to(self.root) / name).mkdir()
            yield from (here / name for name in [*links, *files] if self._wants(here / name))

    def _wants(self, place: Path) -> bool:
        relative = place.relative_to(self.root).as_posix()
        names = (place.name, relative)
        patterns = self.left_out
        return place.name not in SKIPPED and not any(
            fnmatch.fnmatchcase(name, pattern) for name in names for pattern in patterns
        )

    def _copy(self, place: Path, target: Path) -> None:
        if place.is_symlink():
            link = place.readlink()
            led = (place.parent / link).resolve()
            inside = not link.is_absolute() and led.is_relative_to(self.root.resolve())
            target.symlink_to(link if inside else led)
        elif stat.S_ISREG(place.stat().st_mode):
            shutil.copy2(place, target)


def _is_run(place: Path) -> bool:
    """Whether this is the output directory of a run, which is no part of any source."""
    return all((place / name).exists() for name in RUN_FILES)


def _refuse(error: OSError) -> None:
    raise InvalidInput(f"source {error.filename} cannot be read: {error.strerror}") from error
