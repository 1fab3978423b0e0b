"""A bit flips: in a part of the newest checkpoint, or in an accepted artifact."""

from dataclasses import dataclass

from chaos.harm.damage import IN_STORMS, Damage
from chaos.ports.disks import Mode


@dataclass(frozen=True, slots=True)
class FlipBits(Damage):
    """One bit of one file."""

    kind: str = "flip_bits"
    mode: Mode = Mode.FLIP_BITS


FAULT = FlipBits()
TEMPLATE = IN_STORMS
