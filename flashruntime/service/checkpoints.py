"""Checkpoints of workers that share no volume: bytes in the store, their catalogue in the ledger.

A part is announced before it is sent, and from then on referred to, so that none is collected
while its checkpoint is on the way.
"""

import hashlib
import json
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Collection, Iterable
from dataclasses import replace
from threading import Lock
from typing import BinaryIO

from flashruntime.checkpoint.manifest import decode
from flashruntime.errors import ArtifactCorrupt, CheckpointError
from flashruntime.leases.checkpoint_rules import Committed, Found, Offer
from flashruntime.protocol.base import strict_dumps
from flashruntime.protocol.checkpoints import (
    CheckpointRecord,
    CommitRequest,
    LatestCheckpoint,
    Manifest,
    Part,
    PartsAnswer,
    PartSize,
    PartsRequest,
    TaskName,
)
from flashruntime.service.collector import collect
from flashruntime.service.core import Core
from flashruntime.service.damage import report_damage
from flashruntime.service.errors import BadHeader, TooLarge

BLOCK_BYTES = 1024 * 1024
MAX_VERIFIED = 100_000
log = logging.getLogger(__name__)


class Checkpoints:
    """Taking in and giving out the checkpoints of tasks."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._verified = _Remembered(MAX_VERIFIED)

    async def announce(self, name: TaskName, request: PartsRequest) -> PartsAnswer:
        """Refer to the parts of the next checkpoint; return which of them are to be sent."""
        core = self._core
        await core.ledger(core.manager.announce_parts, name, request.lease_id, request.parts)
        return PartsAnswer(missing=await core.disk(self._missing, request.parts))

    async def put_part(
        self, name: TaskName, lease_id: str, sha256: str, chunks: AsyncIterator[bytes]
    ) -> PartSize:
        """Store the bytes of an announced part, if they are those that were announced."""
        core = self._core
        size_bytes = await core.ledger(core.manager.announced_size, name, lease_id, sha256)
        upload = core.blobs.upload()
        try:
            block = bytearray()
            async for chunk in chunks:
                block += chunk
                if upload.size_bytes + len(block) > size_bytes:
                    raise TooLarge(f"part {sha256} was announced with {size_bytes} bytes")
                if len(block) >= BLOCK_BYTES:
                    await core.disk(upload.write, bytes(block))
                    block.clear()
            if upload.size_bytes + len(block) < size_bytes:
                received = upload.size_bytes + len(block)
                raise BadHeader(f"part {sha256} has {size_bytes} bytes, {received} came; send all")
            await core.disk(upload.finish, bytes(block), sha256)
            if core.care.damaged:
                await core.ledger(core.manager.forget_damage, sha256)
        finally:
            await core.disk(upload.close)
        self._verified.add(sha256)
        return PartSize(sha256=sha256, size_bytes=size_bytes)

    async def commit(self, name: TaskName, request: CommitRequest) -> CheckpointRecord:
        """Add a checkpoint to the catalogue if its bytes are here; Conflict, Superseded."""
        core = self._core
        offer = await core.disk(self._offer, request)
        committed = await core.ledger(self._add, name, request.lease_id, offer)
        await collect(core, committed.freed)
        return committed.record

    def _add(self, name: TaskName, lease_id: str, offer: Offer) -> Committed:
        """Commit, unless bytes that were looked at before may have been collected since."""
        manager = self._core.manager
        parts = () if offer.manifest is None else offer.manifest.parts
        if offer.problem is None and manager.unreferenced([part.sha256 for part in parts]):
            words = "parts are announced no more: announce all of this checkpoint, then commit"
            offer = replace(offer, problem=words)
        return manager.commit_checkpoint(name, lease_id, offer)

    async def latest(self, name: TaskName, skip: Collection[str]) -> LatestCheckpoint:
        """Return the newest checkpoint whose bytes are here, none of `skip`."""
        core, passed_over = self._core, set(skip)
        state = await core.ledger(core.manager.checkpoint_state, name)
        while True:
            found = await core.ledger(core.manager.newest_checkpoint, name, passed_over)
            if found is None:
                return state
            answer = await core.disk(self._found, found)
            if answer is not None:
                return state.model_copy(update=answer)
            passed_over.add(found.record.manifest_id)

    async def read_part(self, name: TaskName, sha256: str) -> tuple[int, AsyncIterator[bytes]]:
        """Return size and bytes of a part, hashed again before the first of them leaves."""
        core = self._core
        size_bytes = await core.ledger(core.manager.referenced_size, name, sha256)
        try:
            await core.disk(self._rehash, sha256, size_bytes)
            file = await core.disk(core.blobs.read, sha256, size_bytes)
        except ArtifactCorrupt as error:
            await report_damage(core, sha256, size_bytes, str(error))
            raise
        return size_bytes, self._blocks(file)

    async def _blocks(self, file: BinaryIO) -> AsyncIterator[bytes]:
        try:
            while block := await self._core.disk(file.read, BLOCK_BYTES):
                yield block
        finally:
            file.close()

    def _missing(self, parts: Iterable[PartSize]) -> list[str]:
        """Return the digests whose bytes are not here, or are damaged."""
        return list(dict.fromkeys(p.sha256 for p in parts if self._damage(p) is not None))

    def _offer(self, request: CommitRequest) -> Offer:
        text = strict_dumps(request.manifest)
        try:
            manifest = decode(text.encode())
        except CheckpointError as error:
            return Offer(None, text, request.takes_over, f"the manifest {error}")
        return Offer(manifest, text, request.takes_over, self._problem(manifest))

    def _problem(self, manifest: Manifest) -> str | None:
        """Return what is wrong with the bytes of a checkpoint; each is hashed once at least."""
        for part in manifest.parts:
            if (damage := self._damage(part)) is not None:
                return f"part {part.key!r}: {damage}"
        return None

    def _damage(self, part: Part | PartSize) -> str | None:
        try:
            if part.sha256 in self._verified:
                self._core.blobs.read(part.sha256, part.size_bytes).close()
            else:
                self._rehash(part.sha256, part.size_bytes)
                self._verified.add(part.sha256)
        except ArtifactCorrupt as error:
            return str(error)
        return None

    def _rehash(self, sha256: str, size_bytes: int) -> None:
        """Read a blob as a whole, in blocks; ArtifactCorrupt if it does not hash to its name."""
        digest = hashlib.sha256()
        try:
            with self._core.blobs.read(sha256, size_bytes) as file:
                while block := file.read(BLOCK_BYTES):
                    digest.update(block)
        except OSError as error:
            raise ArtifactCorrupt(f"{sha256} cannot be read ({error.strerror})") from error
        found = digest.hexdigest()
        if found != sha256:
            self._verified.discard(sha256)
            raise ArtifactCorrupt(f"the bytes of {sha256} hash to {found}; upload them again")

    def _found(self, found: Found) -> dict[str, object] | None:
        """Return a checkpoint for the wire; None, with a line in the log, without its bytes."""
        manifest = json.loads(found.manifest_json)
        try:
            for part in manifest["parts"]:
                self._core.blobs.read(part["sha256"], part["size_bytes"]).close()
        except ArtifactCorrupt as error:
            about = {"task_id": found.record.task_id, "step": found.record.step}
            log.error("%s", error, extra={"event": "checkpoint_damaged", **about})
            return None
        return {"checkpoint": found.record, "manifest": manifest}


class _Remembered:
    """The digests added last; for several threads."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = Lock()
        self._known: OrderedDict[str, None] = OrderedDict()

    def __contains__(self, digest: str) -> bool:
        return digest in self._known

    def add(self, digest: str) -> None:
        """Remember a digest; the oldest is forgotten."""
        with self._lock:
            self._known[digest] = None
            if len(self._known) > self._most:
                self._known.popitem(last=False)

    def discard(self, digest: str) -> None:
        """Forget a digest."""
        with self._lock:
            self._known.pop(digest, None)
