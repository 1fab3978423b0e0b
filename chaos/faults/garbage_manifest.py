"""The manifest of the newest checkpoint holds noise."""

from dataclasses import dataclass

from chaos.harm.damage import IN_STORMS, Damage
from chaos.ports.disks import Mode


@dataclass(frozen=True, slots=True)
class GarbageManifest(Damage):
    """Every part is whole, and nobody can say so."""

    kind: str = "garbage_manifest"
    mode: Mode = Mode.GARBAGE_MANIFEST


FAULT = GarbageManifest()
TEMPLATE = IN_STORMS
