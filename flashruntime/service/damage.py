"""What is done about a blob that is missing, of a wrong size or rotten."""

import errno
import hashlib
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO

from flashruntime.errors import ArtifactCorrupt, StoreUnavailable
from flashruntime.service.blobs import BlobStore
from flashruntime.service.core import Core

log = logging.getLogger(__name__)
BLOCK_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Rot:
    """Why a blob is bad, and the file that was found so; `inode` None: there is none."""

    reason: str
    inode: int | None


class Stopped(Exception):
    """The work was broken off."""


def examine(
    blobs: BlobStore, sha256: str, size_bytes: int, pace: Callable[[BinaryIO, int], None]
) -> Rot | None:
    """Read a blob to its end, None if it is good; `pace` is told of each block, and may raise."""
    try:
        file = blobs.read(sha256, size_bytes)
    except ArtifactCorrupt as error:
        return Rot(str(error), blobs.inode(sha256))
    digest = hashlib.sha256()
    with file:
        inode = os.fstat(file.fileno()).st_ino
        try:
            while block := file.read(BLOCK_BYTES):
                digest.update(block)
                pace(file, len(block))
        except OSError as error:
            if error.errno != errno.EIO:
                raise StoreUnavailable(f"{blobs.root} cannot be read: {error}") from error
            return Rot(f"its bytes cannot be read ({error.strerror})", inode)
    found = digest.hexdigest()
    return None if found == sha256 else Rot(f"its bytes hash to {found}", inode)


def unpaced(_file: BinaryIO, _size_bytes: int) -> None:
    """Go on at once."""


async def report_damage(core: Core, sha256: str, size_bytes: int, reason: str) -> None:
    """Look at a blob again, set it aside if it is bad, and say in log and events whom it concerns.

    An upload of the same bytes in the meantime ends the matter.
    """
    rot = await core.disk(examine, core.blobs, sha256, size_bytes, unpaced)
    if rot is not None:
        await settle(core, sha256, size_bytes, rot)
        return
    lines = {"event": "artifact_misread", "sha256": sha256}
    log.warning("%s, but read again it is whole", reason, extra=lines)


async def settle(core: Core, sha256: str, size_bytes: int, rot: Rot) -> bool:
    """Set a bad blob aside and note the damage; return whether it was."""
    if rot.inode is not None and not await core.disk(core.blobs.quarantine, sha256, rot.inode):
        return False
    concerns = await core.ledger(core.manager.note_damage, sha256, rot.reason)
    if await core.disk(core.blobs.whole, sha256, size_bytes):
        await core.ledger(core.manager.forget_damage, sha256)
        return False
    for each in concerns:
        named = {"key": each.key, "job_id": each.job_id, "task_id": each.task_id}
        extra = {"event": "artifact_corrupt", "sha256": sha256, **named}
        log.error("%r is damaged: %s; upload it again", each.key, rot.reason, extra=extra)
    core.care.damaged = len(await core.ledger(core.manager.damages))
    return True
