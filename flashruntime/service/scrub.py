"""Reading all stored bytes again, slowly, to find those that rotted before somebody needs them."""

import json
import os
from threading import Event
from time import monotonic
from typing import BinaryIO

from flashruntime.leases.jsontext import dumps
from flashruntime.service.blob_files import SHARDS, Blob
from flashruntime.service.core import Core
from flashruntime.service.damage import Rot, Stopped, examine, settle

PASS_PAUSE_S = 6 * 3600.0
OFF_S = 24 * 3600.0
YIELD_S = 2.0
MARK_EVERY_S = 60.0
MARK = "scrubbed"


class Pace:
    """Holds a reader to a rate, and back while others transfer; `stop` breaks it off."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._free_s = 0.0
        self.stop = Event()

    def __call__(self, file: BinaryIO, size_bytes: int) -> None:
        """Wait for as long as these bytes may take, and leave them out of the page cache."""
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        self._core.blobs.guard.wait_for_quiet(YIELD_S)
        now_s = monotonic()
        rate = self._core.settings.keeping.scrub_bytes_per_s
        self._free_s = max(now_s, self._free_s) + size_bytes / rate
        if self.stop.wait(self._free_s - now_s):
            raise Stopped


class Scrubber:
    """Goes over the store in the order of digests; after a restart it goes on where it was."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._after: str | None = None
        self._left: list[Blob] = []
        self._marked_s = monotonic()
        self._pace = Pace(core)
        core.before_closing(self._pace.stop.set)

    async def step(self) -> float | None:
        """Check one blob; None while the pass goes on."""
        core = self._core
        if not core.settings.keeping.scrub_bytes_per_s:
            return OFF_S
        if self._after is None:
            self._after = await self._mark()
        if not self._left and not await self._list():
            self._after = ""
            await self._set_mark()
            core.care.scrub_passes += 1
            return PASS_PAUSE_S
        blob = self._left.pop(0)
        try:
            rot = await core.scrub(self._examine, blob)
        except Stopped:
            return None
        if rot is not None:
            await settle(core, blob.sha256, blob.size_bytes, rot)
        core.care.scrubbed_bytes += blob.size_bytes
        self._after = blob.sha256
        if monotonic() - self._marked_s > MARK_EVERY_S:
            await self._set_mark()
        return None

    def _examine(self, blob: Blob) -> Rot | None:
        """Read a blob; a bad one a second time, in case that it was replaced or misread."""
        first = examine(self._core.blobs, blob.sha256, blob.size_bytes, self._pace)
        if first is None:
            return None
        return examine(self._core.blobs, blob.sha256, blob.size_bytes, self._pace)

    async def _list(self) -> bool:
        """Fill `_left` with what comes after the last blob; False at the end of the store."""
        after = self._after or ""
        for shard in SHARDS:
            if shard >= after[:2]:
                listing = await self._core.scrub(self._core.blobs.listing, shard)
                self._left = [blob for blob in listing if blob.sha256 > after]
                if self._left:
                    return True
        return False

    async def _mark(self) -> str:
        mark = await self._core.ledger(self._core.manager.mark, MARK)
        return "" if mark is None else str(json.loads(mark)["after"])

    async def _set_mark(self) -> None:
        self._marked_s = monotonic()
        text = dumps({"after": self._after or ""}, "mark")
        await self._core.ledger(self._core.manager.set_mark, MARK, text)
