"""Writing a checkpoint: parts first, the manifest last, then one rename that makes it count.

One thread makes all system calls that change the tree, in a fixed order, so that every crash point
has a name; helper threads only hash what it writes.
"""

import errno
import os
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import JsonValue

from flashruntime.checkpoint import displace, files
from flashruntime.checkpoint.lineage import Hold
from flashruntime.checkpoint.manifest import (
    MANIFEST_NAME,
    check_part_keys,
    check_part_size,
    decode,
    seal,
    step_name,
)
from flashruntime.checkpoint.parallel import SideBySide
from flashruntime.checkpoint.store import Admits, Rejection, Resume, load
from flashruntime.clock import Clock
from flashruntime.errors import CheckpointError, FlashError, InvalidInput, Superseded
from flashruntime.protocol.checkpoints import MAX_PART_BYTES, Manifest
from flashruntime.protocol.plain import plain

STAGING = ".staging"
MAX_PUBLISH_TRIES = 10
OPEN_PARTS = 16
_IN_THE_WAY = {errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.EISDIR}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What one save stores: plain buffers under plain names, and what the manifest says of them.

    `refuse` looks at the parts while they are written; where it raises, nothing is committed.
    """

    step: int
    parts: Mapping[str, files.Buffer]
    framework: str = "none"
    world_size: int = 1
    metadata: Mapping[str, object] = field(default_factory=dict)
    refuse: Callable[[], object] | None = None


def split(name: str, data: files.Buffer) -> dict[str, memoryview]:
    """Cut a buffer into parts `NAME-00000` and so on that are small enough, without copying."""
    view = memoryview(data).cast("B")
    return {
        f"{name}-{index:05d}": view[start : start + MAX_PART_BYTES]
        for index, start in enumerate(range(0, len(view), MAX_PART_BYTES))
    }


def check(snapshot: Snapshot) -> dict[str, JsonValue]:
    """Refuse what cannot be stored before any file is written; return the metadata as JSON."""
    if not snapshot.parts:
        raise InvalidInput(f"the checkpoint of step {snapshot.step} has no parts; save some state")
    check_part_keys(list(snapshot.parts))
    for key, data in snapshot.parts.items():
        check_part_size(key, memoryview(data).nbytes)
    return {str(key): plain(value, f"metadata.{key}") for key, value in snapshot.metadata.items()}


def commit(hold: Hold, admits: Admits, snapshot: Snapshot, clock: Clock) -> Manifest:
    """Make `snapshot` the durable checkpoint of its step and return its manifest.

    A valid checkpoint of the chain that already stands at this step wins. Superseded where a later
    attempt has begun; CheckpointError where the volume fails: earlier checkpoints stay as they are.
    """
    metadata = check(snapshot)
    hold.check()
    present = _present(hold.root, admits, snapshot.step)
    if isinstance(present, Resume):
        return present.manifest
    staged = hold.root / STAGING / hold.entry.attempt_id / step_name(snapshot.step)
    try:
        manifest = _stage(staged, hold, snapshot, metadata, clock)
        return publish(staged, hold, admits, manifest)
    except FlashError:
        raise
    except OSError as error:
        raise _failure(hold, snapshot.step, error) from error
    finally:
        files.remove(staged)


def clean_staging(root: Path, superseded: set[str]) -> None:
    """Remove what interrupted saves of the named attempts left behind."""
    for attempt_id in superseded:
        files.remove(root / STAGING / attempt_id)


def _present(root: Path, admits: Admits, step: int) -> Resume | Rejection | None:
    try:
        return load(root, step, admits)
    except FileNotFoundError:
        return None


def _stage(
    staged: Path, hold: Hold, snapshot: Snapshot, metadata: dict[str, JsonValue], clock: Clock
) -> Manifest:
    began_s = time.monotonic()
    files.remove(staged)
    staged.parent.mkdir(parents=True, exist_ok=True)
    staged.mkdir()
    with files.directory(staged) as folder:
        parts = _admitted(folder, snapshot)
        fields = {
            "schema_version": "v1alpha1",
            "manifest_id": f"ckpt-{uuid.uuid4().hex}",
            "job_id": hold.entry.job_id,
            "attempt_id": hold.entry.attempt_id,
            "step": snapshot.step,
            "framework": snapshot.framework,
            "world_size": snapshot.world_size,
            "compatible_world_sizes": [snapshot.world_size],
            "parts": parts,
            "validation": "hash_verified",
            "created": clock.utc_now().isoformat(),
            "checkpoint_duration_s": time.monotonic() - began_s,
            "metadata": metadata,
        }
        data = seal(fields)
        manifest = decode(data)
        files.write_file(folder, MANIFEST_NAME, data)
        os.fsync(folder)
    return manifest


def _admitted(folder: int, snapshot: Snapshot) -> list[dict[str, JsonValue]]:
    """Write the parts, and raise what `refuse` has against them."""
    refuse = snapshot.refuse
    refusing = SideBySide(lambda look: look(), [] if refuse is None else [refuse])
    try:
        parts = _write_parts(folder, snapshot.parts)
        refusing.results()
    finally:
        refusing.stop()
    return parts


def _write_parts(folder: int, parts: Mapping[str, files.Buffer]) -> list[dict[str, JsonValue]]:
    """Write the parts in order, each fsynced OPEN_PARTS later, while their digests are computed."""
    hashing = SideBySide(files.sha256_of, parts.values())
    waiting: deque[int] = deque()
    try:
        for key, data in parts.items():
            waiting.append(files.create(folder, key))
            files.write_all(waiting[-1], data)
            if len(waiting) == OPEN_PARTS:
                _sync_and_close(waiting)
        while waiting:
            _sync_and_close(waiting)
        digests = hashing.results()
    finally:
        hashing.stop()
        for descriptor in waiting:
            os.close(descriptor)
    return [
        {"key": key, "sha256": digest, "size_bytes": memoryview(data).nbytes}
        for (key, data), digest in zip(parts.items(), digests, strict=True)
    ]


def _sync_and_close(waiting: deque[int]) -> None:
    os.fsync(waiting[0])
    os.close(waiting.popleft())


def publish(staged: Path, hold: Hold, admits: Admits, manifest: Manifest) -> Manifest:
    """Rename the staged directory into place, clearing the way of what does not count there."""
    name = step_name(manifest.step)
    for _ in range(MAX_PUBLISH_TRIES):
        hold.check()
        try:
            os.rename(staged, hold.root / name)  # noqa: PTH104 (one system call, said as such)
        except OSError as error:
            if error.errno not in _IN_THE_WAY:
                raise
        else:
            files.sync_directory(hold.root)
            return manifest
        present = _present(hold.root, admits, manifest.step)
        if isinstance(present, Resume):
            return present.manifest
        if present is not None:
            reason = f"{present.kind.value}: {present.reason}"
            displace.quarantine(hold, name, reason)
    raise CheckpointError(f"{name} could not be cleared; is something else writing in the tree?")


def _failure(hold: Hold, step: int, error: OSError) -> FlashError:
    """Name what went wrong; a superseded attempt's staging is removed by its successor."""
    try:
        hold.check()
    except Superseded as superseded:
        return superseded
    except (FlashError, OSError):
        pass
    return CheckpointError(
        f"the checkpoint of step {step} could not be written to {hold.root}: "
        f"{files.words_of(error)}; earlier checkpoints are untouched"
    )
