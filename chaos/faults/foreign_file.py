"""A file of somebody else lies in the tree: beside parts, named like a step, or a copy so named."""

from dataclasses import dataclass

from chaos.harm.damage import IN_STORMS, Damage
from chaos.ports.disks import Mode


@dataclass(frozen=True, slots=True)
class ForeignFile(Damage):
    """No checkpoint is worse for it, and none may be taken for a newer one."""

    kind: str = "foreign_file"
    mode: Mode = Mode.FOREIGN_FILE


FAULT = ForeignFile()
TEMPLATE = IN_STORMS
