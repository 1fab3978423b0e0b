"""A file loses its end: a part of the newest checkpoint, or an accepted artifact."""

from dataclasses import dataclass

from chaos.harm.damage import IN_STORMS, Damage
from chaos.ports.disks import Mode


@dataclass(frozen=True, slots=True)
class Truncate(Damage):
    """At least the last byte is gone."""

    kind: str = "truncate"
    mode: Mode = Mode.TRUNCATE


FAULT = Truncate()
TEMPLATE = IN_STORMS
