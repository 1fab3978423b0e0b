"""A file holds zeros only: a part of the newest checkpoint, or an accepted artifact."""

from dataclasses import dataclass

from chaos.harm.damage import IN_STORMS, Damage
from chaos.ports.disks import Mode


@dataclass(frozen=True, slots=True)
class Zero(Damage):
    """As after a crash that lost the data and kept the size."""

    kind: str = "zero"
    mode: Mode = Mode.ZERO


FAULT = Zero()
TEMPLATE = IN_STORMS
