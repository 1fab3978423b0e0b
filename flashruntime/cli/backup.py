"""Back up a coordinator's ledger, output and artifacts, also while it serves; or check a backup.
Exit code 1: something that the ledger refers to is missing or damaged. To restore, start a
coordinator with FLASHML_LEDGER_DIR=DEST/ledger and FLASHML_ARTIFACT_DIR=DEST/artifacts."""

import hashlib
import json
import os
import shutil
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from flashruntime import __version__
from flashruntime.cli.common import plain, size_text
from flashruntime.config import CoordinatorSettings
from flashruntime.errors import InvalidInput, NotFound
from flashruntime.leases.sqlite_backup import LEDGER_FILE, Contents, copy_ledger, read_contents

SNAPSHOTS = 3
SHOWN = 10
BLOCK_BYTES = 1024 * 1024


@dataclass(slots=True)
class Result:
    """What came of the artifacts, and what is wrong with which."""

    linked: int = 0
    copied: int = 0
    size_bytes: int = 0
    problems: dict[str, str] = field(default_factory=dict)


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("dest", type=Path, metavar="DEST", help="a new or empty directory")
    parser.add_argument(
        "--ledger-dir", type=Path, metavar="DIR", help="default: $FLASHML_LEDGER_DIR"
    )
    parser.add_argument(
        "--artifact-dir", type=Path, metavar="DIR", help="default: $FLASHML_ARTIFACT_DIR"
    )
    parser.add_argument("--no-artifacts", action="store_true", help="the ledger and output alone")
    parser.add_argument(
        "--copy", action="store_true", help="never link artifacts, which shares their bytes"
    )
    parser.add_argument("--verify", action="store_true", help="hash every artifact of the backup")
    parser.add_argument("--check", action="store_true", help="only verify the backup DEST")


def run(args: Namespace, _: ArgumentParser) -> int:
    """Make or check a backup; return 1 if it is not whole."""
    settings = CoordinatorSettings.from_env()
    if args.check:
        return _report(args.dest, read_contents(args.dest / "ledger" / LEDGER_FILE), Result(), True)
    ledger_dir = args.ledger_dir or settings.ledger_dir
    artifact_dir = None if args.no_artifacts else args.artifact_dir or settings.artifact_dir
    if args.dest.exists() and (not args.dest.is_dir() or any(args.dest.iterdir())):
        raise InvalidInput(f"{args.dest} is not empty; name a new directory for each backup")
    args.dest.parent.mkdir(parents=True, exist_ok=True)
    part = args.dest.absolute().with_name(f".{args.dest.name}.part-{os.getpid()}")
    try:
        contents, result = _make(part, ledger_dir, artifact_dir, args.copy)
        part.replace(args.dest)
        _fsync(args.dest.absolute().parent)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return _report(args.dest, contents, result, args.verify)


def _make(
    part: Path, ledger_dir: Path, artifact_dir: Path | None, copy: bool
) -> tuple[Contents, Result]:
    """Fill the directory `part`; the ledger first, then what it refers to.

    What a job's deletion took away in between is no longer referred to by the next snapshot.
    """
    ledger, result = part / "ledger", Result()
    ledger.mkdir(parents=True)
    for _ in range(SNAPSHOTS):
        (ledger / LEDGER_FILE).unlink(missing_ok=True)
        copy_ledger(ledger_dir / LEDGER_FILE, ledger / LEDGER_FILE)
        contents = read_contents(ledger / LEDGER_FILE)
        if artifact_dir is not None:
            result.problems = {}
            _take_blobs(artifact_dir, part / "artifacts", contents, result, copy)
        if not set(result.problems) - contents.damaged:
            break
    _copy_logs(ledger_dir / "logs", ledger / "logs")
    about = {
        "schema": "backup_v1",
        "made_at": datetime.now(UTC).isoformat(),
        "flashruntime": __version__,
        "schema_version": contents.schema_version,
        "jobs": contents.jobs,
        "artifacts": artifact_dir is not None,
        "problems": result.problems,
    }
    (part / "backup.json").write_text(json.dumps(about, indent=1, sort_keys=True))
    for directory, _names, _files in os.walk(part):
        _fsync(Path(directory))
    return contents, result


def _take_blobs(source: Path, target: Path, contents: Contents, result: Result, copy: bool) -> None:
    if not (source / "sha256").is_dir():
        raise NotFound(f"{source} is no artifact store; name FLASHML_ARTIFACT_DIR, or say "
                       "--no-artifacts")  # fmt: skip
    for sha256, size_bytes in sorted(contents.sizes.items()):
        to = _place(target, sha256)
        if to.exists():
            continue
        to.parent.mkdir(parents=True, exist_ok=True)
        try:
            _take(_place(source, sha256), to, sha256, result, copy)
            if to.lstat().st_size != size_bytes:
                raise InvalidInput(f"it has {to.lstat().st_size} of {size_bytes} bytes")
        except FileNotFoundError:
            result.problems[sha256] = "it is missing"
        except InvalidInput as error:
            result.problems[sha256] = str(error)
            to.unlink()
        else:
            result.size_bytes += size_bytes


def _take(source: Path, to: Path, sha256: str, result: Result, copy: bool) -> None:
    """Link a blob, whose bytes never change, or copy and check it."""
    if source.is_symlink():
        raise FileNotFoundError(source)
    if not copy:
        with suppress(OSError):
            os.link(source, to, follow_symlinks=False)
            result.linked += 1
            return
    digest = hashlib.sha256()
    with source.open("rb") as blob, to.open("xb") as file:
        while block := blob.read(BLOCK_BYTES):
            digest.update(block)
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
    if digest.hexdigest() != sha256:
        raise InvalidInput(f"its bytes hash to {digest.hexdigest()}")
    result.copied += 1


def _copy_logs(source: Path, target: Path) -> None:
    """Copy the output of attempts, which grows meanwhile."""
    for path in _files(source):
        to = target / path.relative_to(source)
        to.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            shutil.copyfile(path, to, follow_symlinks=False)
            _fsync(to)


def _files(directory: Path) -> Iterator[Path]:
    for path, _names, files in os.walk(directory):
        yield from (Path(path) / name for name in files)


def _place(root: Path, sha256: str) -> Path:
    return root / "sha256" / sha256[:2] / sha256


def _report(dest: Path, contents: Contents, result: Result, verify: bool) -> int:
    """Say what the backup holds and what it lacks."""
    held = (dest / "artifacts").is_dir()
    if verify and held:
        for sha256, size_bytes in sorted(contents.sizes.items()):
            problem = _problem(_place(dest / "artifacts", sha256), sha256, size_bytes)
            if problem is not None:
                result.problems[sha256] = problem
    artifacts = "no artifacts"
    if held:
        total = size_text(sum(contents.sizes.values()))
        artifacts = f"{len(contents.sizes)} artifacts of {total}"
        if result.linked + result.copied:
            artifacts += f" ({result.linked} linked, {result.copied} copied)"
    print(f"{plain(str(dest))}: {contents.jobs} jobs, {artifacts}{', verified' * verify}")
    for sha256, problem in sorted(result.problems.items())[:SHOWN]:
        known = " (known to the coordinator)" if sha256 in contents.damaged else ""
        print(f"  artifact {sha256}: {plain(problem)}{known}")
    if len(result.problems) > SHOWN:
        print(f"  and {len(result.problems) - SHOWN} more")
    return 1 if result.problems else 0


def _problem(blob: Path, sha256: str, size_bytes: int) -> str | None:
    try:
        with blob.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
            size = file.tell()
    except OSError as error:
        return f"it cannot be read ({error.strerror})"
    if (found, size) != (sha256, size_bytes):
        return f"its {size} bytes hash to {found}"
    return None


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
