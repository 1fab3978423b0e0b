"""The twin of the volumes: what was done to them is only noted."""

import time
from dataclasses import replace

from chaos.model import JsonMap
from chaos.ports.disks import Hurt, HurtBlobs, HurtStep, HurtTree, Mode, Room, Volume
from chaos.testing.system import FakeSystem

SIZE_BYTES = 1 << 26


class FakeDisks:
    """Volumes in memory: a full one takes nothing, a read-only one neither."""

    def __init__(self, system: FakeSystem) -> None:
        self._system = system
        self.full: set[str] = set()
        self.read_only: set[str] = set()
        self.forbidden: set[str] = set()

    def hurt_checkpoints(
        self, job_id: str, task_id: str, mode: Mode, depth: int, choice: int
    ) -> HurtTree:
        """Make the newest checkpoints corrupt; a foreign file leaves them as they are."""
        del task_id, choice
        with self._system.lock:
            found = self._system.jobs[job_id].checkpoints
            if len(found) < depth:
                return HurtTree(time.monotonic_ns(), f"only {len(found)} checkpoints")
            counts = mode is not Mode.FOREIGN_FILE
            hurt = Hurt("part-0", "b" * 64, "c" * 64)
            steps = [
                HurtStep(each.step, str(each.manifest_id), str(each.attempt_id), counts, (hurt,))
                for each in found[: -depth - 1 : -1]
            ]
            if counts:
                found[-depth:] = [
                    replace(each, state="corrupt", reason=mode) for each in found[-depth:]
                ]
            return HurtTree(time.monotonic_ns(), None, tuple(steps))

    def hurt_artifact(self, digests: tuple[str, ...], mode: Mode, choice: int) -> HurtBlobs:
        """Note a digest as rotten."""
        del choice
        if not digests or mode is Mode.GARBAGE_MANIFEST:
            return HurtBlobs(time.monotonic_ns(), "no artifact")
        self._system.rotten.add(digests[0])
        hurt = Hurt(digests[0], digests[0], "e" * 64)
        return HurtBlobs(time.monotonic_ns(), None, ((digests[0], hurt),))

    def fill(self, volume: Volume) -> Room:
        """Fill a volume."""
        if refused := self._refused(volume):
            return replace(self.probe(volume), refused=refused)
        self.full.add(volume)
        return self.probe(volume)

    def set_read_only(self, volume: Volume, timeout_s: float) -> Room:
        """Close a volume."""
        del timeout_s
        if refused := self._refused(volume):
            return replace(self.probe(volume), refused=refused)
        self.read_only.add(volume)
        return replace(self.probe(volume), errno=None)

    def forbid(self, volume: Volume) -> Room:
        """Take the right to write to a volume."""
        self.forbidden.add(volume)
        return self.probe(volume)

    def probe(self, volume: Volume) -> Room:
        """Look at a volume."""
        free_bytes = 0 if volume in self.full else SIZE_BYTES
        errno = "ENOSPC" if volume in self.full else None
        errno = "EROFS" if volume in self.read_only else errno
        errno = "EACCES" if volume in self.forbidden else errno
        return Room(time.monotonic_ns(), SIZE_BYTES, free_bytes, errno)

    def undo(self, action: str, args: JsonMap) -> None:
        """Put right what an undo of the volumes speaks of; others are not known here."""
        if action == "drain_volume":
            self.full.discard(str(args["volume"]))
        elif action == "volume_writable":
            self.read_only.discard(str(args["volume"]))
        elif action == "directories_writable":
            self.forbidden.discard(str(args["volume"]))
        elif action == "restore_artifacts":
            self._system.rotten.clear()

    def _refused(self, volume: Volume) -> str | None:
        limited = self._system.spec.limits_mib
        return None if limited else f"{volume} is a directory of a larger file system"
