"""A file is gone: a part of the newest checkpoint, or an accepted artifact."""

from dataclasses import dataclass

from chaos.harm.damage import IN_STORMS, Damage
from chaos.ports.disks import Mode


@dataclass(frozen=True, slots=True)
class Delete(Damage):
    """Its name is gone, durably."""

    kind: str = "delete"
    mode: Mode = Mode.DELETE


FAULT = Delete()
TEMPLATE = IN_STORMS
