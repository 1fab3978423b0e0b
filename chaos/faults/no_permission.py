"""The directories of a volume take no new files for a while: every write ends with EACCES."""

from dataclasses import dataclass

from chaos.harm.volumes import Closing
from chaos.ports import Disks
from chaos.ports.disks import Room, Volume


@dataclass(frozen=True, slots=True)
class NoPermission(Closing):
    """Works on a volume of any size, also while somebody writes; files that are open stay so."""

    kind: str = "no_permission"
    undo_action: str = "directories_writable"
    errors: tuple[str, ...] = ("EACCES",)

    def close(self, disks: Disks, volume: Volume) -> Room:
        """Take the right away."""
        return disks.forbid(volume)


FAULT = NoPermission()
