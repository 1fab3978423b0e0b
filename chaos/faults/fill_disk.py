"""A volume of limited size is full for a while: every write ends with ENOSPC."""

from dataclasses import dataclass

from chaos.harm.volumes import Closing
from chaos.ports import Disks
from chaos.ports.disks import Room, Volume


@dataclass(frozen=True, slots=True)
class FillDisk(Closing):
    """A filler takes the room, and what others give back while it lasts."""

    kind: str = "fill_disk"
    undo_action: str = "drain_volume"
    errors: tuple[str, ...] = ("ENOSPC",)

    def close(self, disks: Disks, volume: Volume) -> Room:
        """Fill it."""
        return disks.fill(volume)


FAULT = FillDisk()
