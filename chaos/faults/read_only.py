"""A volume of limited size is read-only for a while: every write ends with EROFS."""

from dataclasses import dataclass

from chaos.harm.volumes import Closing
from chaos.ports import Disks
from chaos.ports.disks import Room, Volume

TRY_S = 5.0


@dataclass(frozen=True, slots=True)
class ReadOnly(Closing):
    """The file system itself is remounted, between two writes: the kernel refuses it during one.

    So it misses on a volume in which somebody always has a file open for writing; `no_permission`
    does not.
    """

    kind: str = "read_only"
    undo_action: str = "volume_writable"
    errors: tuple[str, ...] = ("EROFS",)

    def close(self, disks: Disks, volume: Volume) -> Room:
        """Remount it."""
        return disks.set_read_only(volume, TRY_S)


FAULT = ReadOnly()
