"""Taking in and giving out the bytes of objects.

Whole objects, and parts of small ones, are hashed while they are given out: what rotted is refused
or breaks off before its end, and is set aside. Parts of large ones are only checked for size.
"""

import hashlib
import logging
from collections.abc import AsyncIterator
from functools import partial
from typing import BinaryIO

from flashruntime.errors import ArtifactCorrupt
from flashruntime.protocol.tasks import ArtifactRecord
from flashruntime.service.blobs import check_size
from flashruntime.service.core import Core
from flashruntime.service.damage import report_damage
from flashruntime.service.small_puts import SMALL_BYTES

log = logging.getLogger(__name__)
BLOCK_BYTES = 1024 * 1024


class Artifacts:
    """Objects by key."""

    def __init__(self, core: Core) -> None:
        self._core = core

    async def put(
        self, key: str, chunks: AsyncIterator[bytes], declared: int | None, sha256: str | None
    ) -> ArtifactRecord:
        """Store what arrives under `key`; nothing of it is seen before all of it is durable."""
        core = self._core
        check_size(declared or 0, core.blobs.max_bytes)
        if declared is not None and declared <= SMALL_BYTES:
            data = b"".join([chunk async for chunk in chunks])
            return await core.put_small(key, data, sha256)
        room = await core.ledger(core.manager.admit, key)
        if room is not None:
            room.check(declared or 0)
        core.blobs.guard.arrive(declared or 0, announced=True)
        upload = core.blobs.upload(None if room is None else room.check)
        with core.blobs.guard.transfer():
            try:
                block = bytearray()
                async for chunk in chunks:
                    block += chunk
                    if len(block) >= BLOCK_BYTES:
                        await core.disk(upload.write, bytes(block))
                        block.clear()
                found = await core.disk(upload.finish, bytes(block), sha256)
                put = partial(core.manager.put_object, key, found, upload.size_bytes, None)
                return await core.ledger(put)
            finally:
                await core.disk(upload.close)

    async def find(self, key: str) -> ArtifactRecord:
        """Return what is stored under `key`; ArtifactCorrupt if its bytes are known to be bad."""
        record = await self._core.ledger(self._core.manager.object, key)
        if record.damaged is not None:
            raise ArtifactCorrupt(f"{key!r} is damaged ({record.damaged}); upload it again")
        return record

    async def check(self, record: ArtifactRecord) -> None:
        """Raise ArtifactCorrupt unless a file of the right size is there."""
        (await self._open(record)).close()

    async def read(self, record: ArtifactRecord, start: int, end: int) -> AsyncIterator[bytes]:
        """Return the bytes from `start` up to `end` in blocks; ArtifactCorrupt, also midway."""
        file = await self._open(record)
        if record.size_bytes <= BLOCK_BYTES:
            return _once((await self._small(record, file))[start:end])
        if (start, end) == (0, record.size_bytes):
            return self._whole(record, file)
        return self._part(file, start, end)

    async def _open(self, record: ArtifactRecord) -> BinaryIO:
        core = self._core
        try:
            return await core.disk(core.blobs.read, record.sha256, record.size_bytes)
        except ArtifactCorrupt as error:
            await report_damage(core, record.sha256, record.size_bytes, str(error))
            raise

    async def _small(self, record: ArtifactRecord, file: BinaryIO) -> bytes:
        def read() -> bytes:
            with file:
                return file.read(BLOCK_BYTES + 1)

        data = await self._core.disk(read)
        await self._require(record, hashlib.sha256(data).hexdigest())
        return data

    async def _require(self, record: ArtifactRecord, found: str) -> None:
        if found != record.sha256:
            reason = f"the stored bytes of {record.sha256} hash to {found}"
            await report_damage(self._core, record.sha256, record.size_bytes, reason)
            raise ArtifactCorrupt(f"{reason}; upload them again")

    async def _whole(self, record: ArtifactRecord, file: BinaryIO) -> AsyncIterator[bytes]:
        """Hold each block back until the next one is there, the last until the digest is known."""
        digest = hashlib.sha256()

        def following() -> bytes:
            block = file.read(BLOCK_BYTES)
            digest.update(block)
            return block

        with self._core.blobs.guard.transfer(), file:
            held = await self._core.disk(following)
            while block := await self._core.disk(following):
                yield held
                held = block
            await self._require(record, digest.hexdigest())
            yield held

    async def _part(self, file: BinaryIO, start: int, end: int) -> AsyncIterator[bytes]:
        with self._core.blobs.guard.transfer(), file:
            await self._core.disk(file.seek, start)
            while start < end:
                block = await self._core.disk(file.read, min(BLOCK_BYTES, end - start))
                if not block:
                    raise ArtifactCorrupt("the bytes end before their time; upload them again")
                start += len(block)
                yield block


async def _once(data: bytes) -> AsyncIterator[bytes]:
    yield data
