"""Reading a checkpoint tree: newest first, and exactly the bytes that were verified."""

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from flashruntime.checkpoint import files
from flashruntime.checkpoint.manifest import (
    MANIFEST_NAME,
    MAX_MANIFEST_BYTES,
    decode,
    parse_step_name,
    step_name,
)
from flashruntime.checkpoint.parallel import SideBySide
from flashruntime.errors import CheckpointError
from flashruntime.protocol.checkpoints import Manifest, Part

REJECTED = ".rejected"
RESTORED = ".restored"
MAX_RESCANS = 100

Admits = Callable[[Manifest], bool]


class Kind(StrEnum):
    """What a step directory is worth."""

    VALID = "valid"
    TORN = "torn"
    CORRUPT = "corrupt"
    FOREIGN = "foreign"
    SET_ASIDE = "set_aside"


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a step cannot be resumed from; `part` names the file at fault where there is one."""

    step: int
    kind: Kind
    reason: str
    part: str | None = None


@dataclass(frozen=True, slots=True)
class Resume:
    """A verified checkpoint: `parts` holds the very bytes whose digests were checked."""

    step: int
    manifest: Manifest
    parts: dict[str, bytearray]


def steps(root: Path) -> list[int]:
    """Return the steps that have a directory in `root`, newest first; dates play no part."""
    try:
        names = os.listdir(root)  # noqa: PTH208 (names alone, no Path objects)
    except FileNotFoundError:
        return []
    return sorted(step for name in names if (step := parse_step_name(name)) is not None)[::-1]


def newest(root: Path, admits: Admits) -> tuple[Resume | None, list[Rejection]]:
    """Return the newest step that is admitted and verifies, and why newer ones were passed over.

    A step that another process removes meanwhile is no rejection: the tree is listed again.
    """
    for _ in range(MAX_RESCANS):
        rejections: list[Rejection] = []
        try:
            for step in steps(root):
                found = load(root, step, admits)
                if isinstance(found, Resume):
                    return found, rejections
                (root / step_name(step)).lstat()
                rejections.append(found)
        except FileNotFoundError:
            continue
        return None, rejections
    raise CheckpointError(f"{root} keeps changing while it is read; is another process pruning it?")


def load(root: Path, step: int, admits: Admits) -> Resume | Rejection:
    """Read and verify one step; FileNotFoundError where it has no directory."""
    try:
        with files.directory(root / step_name(step)) as folder:
            manifest = _manifest(folder, step)
            if isinstance(manifest, Rejection):
                return manifest
            refused = _refusal(root, manifest, admits)
            return refused or _verified(folder, manifest)
    except FileNotFoundError:
        raise
    except OSError as error:
        return Rejection(step, Kind.FOREIGN, f"cannot be opened as a directory: {error.strerror}")


def load_manifest(root: Path, step: int) -> Manifest | Rejection:
    """Read the manifest of one step without its parts; FileNotFoundError without a directory."""
    try:
        with files.directory(root / step_name(step)) as folder:
            return _manifest(folder, step)
    except FileNotFoundError:
        raise
    except OSError as error:
        return Rejection(step, Kind.FOREIGN, f"cannot be opened as a directory: {error.strerror}")


def sidecar(root: Path, manifest: Manifest, kind: str = REJECTED) -> Path:
    """Return where it is noted that `manifest` was set aside, or (RESTORED) loaded by a run."""
    key = hashlib.sha256(manifest.manifest_id.encode()).hexdigest()[:16]
    return root / kind / f"{step_name(manifest.step)}.{key}.json"


def validation(root: Path, manifest: Manifest) -> str:
    """Return what is known of a checkpoint whose parts hash to its manifest."""
    restored = os.path.lexists(sidecar(root, manifest, RESTORED))
    return "restore_verified" if restored else manifest.validation


def _manifest(folder: int, step: int) -> Manifest | Rejection:
    try:
        size_bytes = files.file_size(folder, MANIFEST_NAME)
    except CheckpointError as error:
        return Rejection(step, Kind.TORN, f"{MANIFEST_NAME} {error}", MANIFEST_NAME)
    try:
        if size_bytes > MAX_MANIFEST_BYTES:
            raise CheckpointError(f"has more than {MAX_MANIFEST_BYTES} bytes")
        data, _ = files.read_file(folder, MANIFEST_NAME, size_bytes)
        manifest = decode(bytes(data))
        if manifest.step != step:
            raise CheckpointError(f"speaks of step {manifest.step}")
    except CheckpointError as error:
        return Rejection(step, Kind.CORRUPT, f"{MANIFEST_NAME} {error}", MANIFEST_NAME)
    return manifest


def _refusal(root: Path, manifest: Manifest, admits: Admits) -> Rejection | None:
    if not admits(manifest):
        reason = f"was written by {manifest.attempt_id}, outside of this chain of attempts"
        return Rejection(manifest.step, Kind.FOREIGN, reason)
    if os.path.lexists(sidecar(root, manifest)):
        return Rejection(manifest.step, Kind.SET_ASIDE, "was set aside by an earlier attempt")
    return None


def _verified(folder: int, manifest: Manifest) -> Resume | Rejection:
    """Check every size before reading anything, then read and hash the parts side by side."""
    current = manifest.parts[0]

    def checked(part: Part) -> bytearray | CheckpointError:
        try:
            return _part(folder, part)
        except CheckpointError as error:
            return error

    try:
        for current in manifest.parts:
            actual_bytes = files.file_size(folder, current.key)
            if actual_bytes != current.size_bytes:
                raise CheckpointError(f"has {actual_bytes} bytes instead of {current.size_bytes}")
    except CheckpointError as error:
        return _bad_part(manifest.step, current, error)
    reading = SideBySide(checked, manifest.parts)
    try:
        results = reading.results()
    finally:
        reading.stop()
    parts: dict[str, bytearray] = {}
    for current, result in zip(manifest.parts, results, strict=True):
        if isinstance(result, CheckpointError):
            return _bad_part(manifest.step, current, result)
        parts[current.key] = result
    return Resume(manifest.step, manifest, parts)


def _part(folder: int, part: Part) -> bytearray:
    data, sha256 = files.read_file(folder, part.key, part.size_bytes)
    if sha256 != part.sha256:
        raise CheckpointError("does not hash to the sha256 in the manifest")
    return data


def _bad_part(step: int, part: Part, error: CheckpointError) -> Rejection:
    return Rejection(step, Kind.CORRUPT, f"{part.key} {error}", part.key)
