"""Collecting blobs that nothing refers to, and noticing those that should be there and are not."""

import logging
from collections.abc import Sequence
from pathlib import Path

from flashruntime.service.blob_files import SHARDS, Blob
from flashruntime.service.core import Core
from flashruntime.service.damage import Rot, settle

log = logging.getLogger(__name__)
PERIOD_S = 3600.0
# A blob may wait for the call that refers to it, an uploaded input for its job.
GRACE_S = 3600.0
INPUT_GRACE_S = 24 * 3600.0
BATCH = 200


class Collector:
    """Goes over the store shard by shard, once an hour, by names and sizes only."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._next = 0
        self._expected: str | None = None

    async def step(self) -> float | None:
        """Look after one shard; None while the pass goes on."""
        if self._next == 0:
            await self._core.ledger(self._core.manager.release_announcements)
            first = await self._core.ledger(self._core.manager.expected, "", 1)
            self._expected = first[0][0] if first else None
        at, listing = await self._core.scrub(self._following)
        if at < len(SHARDS):
            await self._collect(listing)
            await self._miss(SHARDS[at], {blob.sha256: blob.size_bytes for blob in listing})
        self._next = at + 1
        if self._next < len(SHARDS):
            return None
        self._next = 0
        await self._core.count_damage()
        return PERIOD_S

    def _following(self) -> tuple[int, list[Blob]]:
        """Return the next shard in which there is or should be something, and what is there."""
        for at in range(self._next, len(SHARDS)):
            listing = self._core.blobs.listing(SHARDS[at])
            if listing or (self._expected or "").startswith(SHARDS[at]):
                return at, listing
        return len(SHARDS), []

    async def _collect(self, listing: Sequence[Blob]) -> None:
        now_s = self._core.clock.utc_now().timestamp()
        for start in range(0, len(listing), BATCH):
            ages_s = {blob.sha256: now_s - blob.at_s for blob in listing[start : start + BATCH]}
            old = [sha256 for sha256, age_s in ages_s.items() if age_s > INPUT_GRACE_S]
            younger = [sha256 for sha256, age_s in ages_s.items() if age_s > GRACE_S]
            await collect(self._core, old, drop_inputs=True)
            await collect(self._core, [each for each in younger if each not in set(old)])

    async def _miss(self, shard: str, present: dict[str, int]) -> None:
        """Note what the ledger says is in a shard and is not there, or not in that size."""
        core, after = self._core, shard
        while True:
            expected = await core.ledger(core.manager.expected, after, BATCH)
            here = [each for each in expected if each[0].startswith(shard)]
            self._expected = next((each for each, _ in expected[len(here) :]), None)
            for sha256, size_bytes in here:
                if present.get(sha256) == size_bytes:
                    continue
                if not await core.disk(core.blobs.whole, sha256, size_bytes):
                    inode = await core.disk(core.blobs.inode, sha256)
                    reason = "its bytes are missing" if inode is None else "its size is wrong"
                    await settle(core, sha256, size_bytes, Rot(reason, inode))
            if len(here) < BATCH:
                return
            after = here[-1][0]


async def collect(core: Core, digests: Sequence[str], *, drop_inputs: bool = False) -> int:
    """Remove those blobs that nothing refers to; return how many.

    Nothing can come to refer to one in between: looking and taking is one call on the ledger's
    thread, apart from any group of changes that could still be undone.
    """
    named = list(dict.fromkeys(digests))
    if not named:
        return 0

    def take() -> list[Path]:
        gone = core.manager.unreferenced(named, drop_inputs=drop_inputs)
        taken = (core.blobs.take_away(sha256) for sha256 in gone)
        return [aside for aside in taken if aside is not None]

    removed = await core.alone(take)
    if removed:
        # Not behind the scrubber, which reads a large blob for minutes: calls wait for this.
        await core.disk(_unlink, removed)
        extra = {"event": "blobs_collected", "count": len(removed)}
        log.info("removed bytes that nothing refers to", extra=extra)
    return len(removed)


def _unlink(paths: Sequence[Path]) -> None:
    for path in paths:
        path.unlink()
