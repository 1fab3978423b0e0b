"""Checkpoints of an attempt to and from the coordinator's store, where workers share no volume.

Before the process starts, the newest checkpoint of the task is brought into the local tree. While
it runs, each new one of its own is sent behind it, at most POLL_S after it was committed; of
several the newest. Nothing of that stops the training: what cannot be sent is logged.
"""

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Event, Thread, get_native_id
from time import monotonic
from typing import Self

from flashruntime.checkpoint import adopt, files, notes
from flashruntime.checkpoint.manifest import MANIFEST_NAME, MAX_MANIFEST_BYTES, step_name
from flashruntime.clock import SystemClock
from flashruntime.errors import (
    ArtifactCorrupt,
    CheckpointError,
    CoordinatorUnreachable,
    FlashError,
    NotFound,
    Superseded,
)
from flashruntime.protocol.base import strict_dumps
from flashruntime.protocol.checkpoints import (
    CheckpointRecord,
    CommitRequest,
    LatestCheckpoint,
    Manifest,
    Part,
    PartSize,
    PartsRequest,
    SetAsideRequest,
    TaskName,
)
from flashruntime.protocol.tasks import Lease
from flashruntime.worker import events
from flashruntime.worker.control import AttemptControl, delays_s
from flashruntime.worker.ports import CheckpointCalls

POLL_S = 0.5
MAX_TRIES = 3
MAX_SKIPPED = 50
MAX_FINISH_S = 30.0
MAX_CLOSE_S = 1.0
SHARE_OF_NOTICE = 0.5
NICE = 10


class Closed(FlashError):
    """The attempt is over; what was under way is given up."""


class Relay:
    """One attempt's checkpoints; without `calls` it does nothing."""

    def __init__(
        self, lease: Lease, root: Path, control: AttemptControl, calls: CheckpointCalls | None
    ) -> None:
        self._lease = lease
        self._name = TaskName(lease.job_id, lease.task_id)
        self._root = root
        self._control = control
        self._calls = calls
        self._looked_at: object = None
        self._sent: set[str] = set()
        self._tries: Counter[str] = Counter()
        self._noted: set[str] = set()
        self._closed = Event()
        self._wanted = Event()
        self._done = Event()
        self._thread = Thread(target=self._run, name="relay", daemon=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give up what is under way; after success nothing needs a checkpoint any more."""
        self._closed.set()
        self._wanted.set()
        if self._thread.ident is not None:
            self._done.wait(MAX_CLOSE_S)

    def fetch(self) -> None:
        """Bring the task's newest checkpoint into the tree, then watch for new ones.

        Waits for the coordinator, and gives up where the worker is to leave. Raises OSError where
        the tree takes nothing, Superseded and NoticeOver as the attempt's control does.
        """
        if self._calls is not None:
            with suppress(Closed):
                self._fetch(self._calls)
            self._thread.start()

    def _fetch(self, calls: CheckpointCalls) -> None:
        skip: list[str] = []
        while len(skip) < MAX_SKIPPED:
            try:
                call = partial(calls.latest, self._name, skip)
                found = self._control.until_answered(call)
            except NotFound as error:
                self._warn("checkpoints_unknown", error)
                return
            self._bring_chain(found)
            record = found.checkpoint
            committed = {each.lease_id for each in found.lineage}
            if record is None or adopt.newest_intact(self._root, record.step, committed):
                return
            try:
                self._adopt(calls, found, record)
            except (ArtifactCorrupt, CheckpointError, NotFound) as error:
                self._warn("checkpoint_not_fetched", error, step=record.step)
                skip.append(record.manifest_id)
            else:
                return

    def _bring_chain(self, found: LatestCheckpoint) -> None:
        own = self._lease.lease_id
        elsewhere = [
            adopt.Predecessor(each.lease_id, each.attempt_number - 1, each.takes_over)
            for each in found.lineage
            if each.lease_id != own
        ]
        adopt.record_lineage(self._root, self._lease.job_id, elsewhere, SystemClock())
        adopt.set_aside(self._root, found.set_aside, own, "was set aside on another worker")

    def _adopt(
        self, calls: CheckpointCalls, found: LatestCheckpoint, record: CheckpointRecord
    ) -> None:
        began_s = monotonic()
        data = strict_dumps(found.manifest).encode() + b"\n"

        def fetch(part: Part, to: Path) -> None:
            self._control.check()
            if self._control.stop.requested:
                raise Closed
            self._control.until_answered(partial(calls.get_part, self._name, part, to))

        adopt.adopt(self._root, data, self._lease.lease_id, fetch)
        self._tell("checkpoint_fetched", record, began_s)

    def finish(self) -> None:
        """Send the attempt's last checkpoint, for as long as there is time; call it once."""
        if self._thread.ident is None:
            return
        self._wanted.set()
        left_s = self._control.stop.remaining_s() * SHARE_OF_NOTICE
        if not self._done.wait(min(MAX_FINISH_S, left_s)):
            events.warning("checkpoint_not_sent_in_time", lease_id=self._lease.lease_id)

    def _run(self) -> None:
        _step_back()
        try:
            if self._calls is not None:
                self._watch(self._calls)
        finally:
            self._done.set()

    def _watch(self, calls: CheckpointCalls) -> None:
        delays, wait_s = delays_s(), POLL_S
        while not self._closed.is_set():
            last = self._wanted.wait(wait_s)
            if self._closed.is_set():
                return
            try:
                self._send_new(calls)
                if last:
                    return
                delays, wait_s = delays_s(), POLL_S
            except CoordinatorUnreachable as error:
                self._tries.clear()
                wait_s = POLL_S + next(delays)
                self._warn("relay_unanswered", error)
                self._closed.wait(wait_s if last else 0.0)
            except Superseded as error:
                self._control.lose(f"checkpoint refused: {error}")
                return
            except Closed:
                return
            except Exception as error:  # noqa: BLE001 (thread boundary: the attempt goes on)
                self._warn("checkpoint_not_sent", error)
                wait_s = POLL_S + next(delays)
                self._closed.wait(wait_s if last else 0.0)

    def _send_new(self, calls: CheckpointCalls) -> None:
        """Tell what the process set aside, then send its newest checkpoint if that is new."""
        for path, note in notes.set_aside_by(self._root, self._lease.lease_id, self._noted):
            about = {"lease_id": self._lease.lease_id, "manifest_id": note.manifest_id}
            with suppress(NotFound):
                calls.set_aside(self._name, SetAsideRequest(**about, reason=note.reason[:4_000]))
            self._noted.add(path)
        seen = adopt.signature(self._root)
        if seen == self._looked_at:
            return
        manifest = adopt.newest_of(self._root, self._lease.lease_id)
        if manifest is not None and manifest.manifest_id not in self._sent:
            self._tries[manifest.manifest_id] += 1
            if self._tries[manifest.manifest_id] <= MAX_TRIES:
                self._send(calls, manifest)
        self._looked_at = seen

    def _send(self, calls: CheckpointCalls, manifest: Manifest) -> None:
        began_s, lease_id = monotonic(), self._lease.lease_id
        folder = self._root / step_name(manifest.step)
        data = files.read_small(folder / MANIFEST_NAME, MAX_MANIFEST_BYTES)
        sizes = [PartSize(sha256=p.sha256, size_bytes=p.size_bytes) for p in manifest.parts]
        missing = set(calls.announce(self._name, PartsRequest(lease_id=lease_id, parts=sizes)))
        for part in manifest.parts:
            if part.sha256 in missing:
                missing.discard(part.sha256)
                with files.directory(folder) as opened:
                    calls.put_part(self._name, lease_id, part, self._chunks(opened, part))
        taken = adopt.taken_over_by(self._root, lease_id)
        request = CommitRequest(lease_id=lease_id, manifest=json.loads(data), takes_over=taken)
        record = calls.commit(self._name, request)
        self._sent.add(manifest.manifest_id)
        self._tell("checkpoint_sent", record, began_s)

    def _chunks(self, folder: int, part: Part) -> Iterator[bytes]:
        """Yield the bytes of a part file; CheckpointError if it has not the size it must have."""
        with files.opened(folder, part.key) as (descriptor, size_bytes):
            if size_bytes != part.size_bytes:
                raise CheckpointError(f"{part.key} has {size_bytes} of {part.size_bytes} bytes")
            left = size_bytes
            while left > 0:
                if self._closed.is_set():
                    raise Closed
                chunk = os.read(descriptor, min(left, files.READ_CHUNK_BYTES))
                if not chunk:
                    raise CheckpointError(f"{part.key} ended early")
                left -= len(chunk)
                yield chunk

    def _tell(self, event: str, record: CheckpointRecord, began_s: float) -> None:
        events.info(
            event,
            lease_id=self._lease.lease_id,
            task_id=record.task_id,
            step=record.step,
            size_bytes=record.size_bytes,
            duration_s=round(monotonic() - began_s, 3),
        )

    def _warn(self, event: str, error: Exception, **more: int) -> None:
        events.warning(event, lease_id=self._lease.lease_id, error=str(error), **more)


def _step_back() -> None:
    """Leave the processors to the training; Linux can lower the priority of one thread alone."""
    if sys.platform == "linux":
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, get_native_id(), NICE)
