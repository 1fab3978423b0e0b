"""Bringing a checkpoint that was written elsewhere into a tree, so that its chain accepts it.

What the tree does not know of the attempts in between is recorded first: from then on what a
superseded attempt left here beyond what they took over is foreign, as on a shared volume.
"""

import hashlib
import os
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from flashruntime.checkpoint import commit, files, lineage, notes
from flashruntime.checkpoint.lineage import Admission, Entry, Hold
from flashruntime.checkpoint.manifest import MANIFEST_NAME, decode, step_name
from flashruntime.checkpoint.store import REJECTED, Admits, load_manifest, sidecar, steps
from flashruntime.clock import Clock
from flashruntime.errors import CheckpointError
from flashruntime.protocol.checkpoints import Manifest, Part, TakenOver

SCRATCH_PREFIX = "fetch-"

# Writes the verified bytes of a part to a file that does not exist yet.
Fetch = Callable[[Part, Path], object]


@dataclass(frozen=True, slots=True)
class Predecessor:
    """An attempt of the same task elsewhere, and what it took over."""

    attempt_id: str
    epoch: int
    takes_over: TakenOver | None


def record_lineage(root: Path, job_id: str, elsewhere: Iterable[Predecessor], clock: Clock) -> None:
    """Record the attempts that began after the head of this tree, in their order."""
    for each in sorted(elsewhere, key=lambda known: known.epoch):
        files.make_directory(root / lineage.LINEAGE)
        while True:
            known = lineage.numbers(root)
            entries = lineage.read(root, known)
            head = entries[-1] if entries else None
            if head is not None and (head.job_id != job_id or head.epoch >= each.epoch):
                break
            if lineage.publish(root, _entry(max(known, default=0) + 1, job_id, each, clock)):
                break


def _entry(number: int, job_id: str, attempt: Predecessor, clock: Clock) -> Entry:
    return Entry(
        n=number,
        attempt_id=attempt.attempt_id,
        job_id=job_id,
        epoch=attempt.epoch,
        takes_over=attempt.takes_over,
        created=clock.utc_now(),
    )


def set_aside(root: Path, found: Sequence[TakenOver], by: str, reason: str) -> None:
    """Note which checkpoints of this tree were found elsewhere to be of no use."""
    for each in found:
        try:
            manifest = load_manifest(root, each.step)
        except FileNotFoundError:
            continue
        if isinstance(manifest, Manifest) and manifest.manifest_id == each.manifest_id:
            notes.write(root, manifest, REJECTED, by, reason)


def newest_intact(root: Path, least: int, elsewhere: Collection[str]) -> Manifest | None:
    """Return the newest checkpoint of the chain, of step `least` or more, whose bytes verify.

    `elsewhere` are the attempts that have committed, wherever.
    """
    admits = _admission(root, elsewhere)
    for step in steps(root):
        if step < least:
            return None
        manifest = _usable(root, step, admits)
        if manifest is not None and _is_intact(root, manifest):
            return manifest
    return None


def _admission(root: Path, elsewhere: Collection[str]) -> Admission:
    entries = lineage.read(root, lineage.numbers(root))
    return Admission(lineage.without_vain(root, entries, elsewhere))


def _usable(root: Path, step: int, admits: Admits) -> Manifest | None:
    try:
        manifest = load_manifest(root, step)
    except FileNotFoundError:
        return None
    if not isinstance(manifest, Manifest) or not admits(manifest):
        return None
    return None if os.path.lexists(sidecar(root, manifest)) else manifest


def _is_intact(root: Path, manifest: Manifest) -> bool:
    """Hash the parts of a checkpoint in blocks, without holding any of them in memory."""
    try:
        with files.directory(root / step_name(manifest.step)) as folder:
            return all(_hashes(folder, part) for part in manifest.parts)
    except (OSError, CheckpointError):
        return False


def _hashes(folder: int, part: Part) -> bool:
    with files.opened(folder, part.key) as (descriptor, size_bytes):
        if size_bytes != part.size_bytes:
            return False
        with os.fdopen(os.dup(descriptor), "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == part.sha256


def signature(root: Path) -> frozenset[tuple[str, int]]:
    """Return what differs once a checkpoint has been committed to the tree or removed."""
    try:
        with os.scandir(root) as found:
            return frozenset((entry.name, entry.inode()) for entry in found)
    except FileNotFoundError:
        return frozenset()


def newest_of(root: Path, attempt_id: str) -> Manifest | None:
    """Return the newest checkpoint that an attempt has committed and nobody set aside."""
    for step in steps(root):
        found = _usable(root, step, lambda manifest: manifest.attempt_id == attempt_id)
        if found is not None:
            return found
    return None


def taken_over_by(root: Path, attempt_id: str) -> TakenOver | None:
    """Return what an attempt recorded at its begin that it goes on from."""
    entries = lineage.read(root, lineage.numbers(root))
    own = [entry for entry in entries if entry.attempt_id == attempt_id]
    return own[-1].takes_over if own else None


def adopt(root: Path, data: bytes, scratch: str, fetch: Fetch) -> Manifest:
    """Commit the checkpoint with the manifest `data` here, its parts first, and return it.

    The lineage must know its attempt. `fetch` verifies what it writes. A valid checkpoint of the
    chain that stands at its step already wins. CheckpointError, OSError, and what `fetch` raises.
    """
    manifest = decode(data)
    entries = lineage.read(root, lineage.numbers(root))
    admits = _admission(root, {manifest.attempt_id})
    if not entries or not admits(manifest):
        raise CheckpointError(f"step {manifest.step} is not of the chain of {root}")
    staging = root / commit.STAGING
    for leftover in staging.glob(f"{SCRATCH_PREFIX}*"):
        files.remove(leftover)
    staged = staging / f"{SCRATCH_PREFIX}{scratch}" / step_name(manifest.step)
    staged.mkdir(parents=True)
    try:
        _stage(staged, manifest, data, fetch)
        return commit.publish(staged, Hold(root, entries[-1]), admits, manifest)
    finally:
        files.remove(staged.parent)


def _stage(staged: Path, manifest: Manifest, data: bytes, fetch: Fetch) -> None:
    with files.directory(staged) as folder:
        for part in manifest.parts:
            fetch(part, staged / part.key)
            with files.opened(folder, part.key) as (descriptor, size_bytes):
                if size_bytes != part.size_bytes:
                    raise CheckpointError(f"{part.key} came with {size_bytes} bytes")
                os.fsync(descriptor)
        files.write_file(folder, MANIFEST_NAME, data)
        os.fsync(folder)
