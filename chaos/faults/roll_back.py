"""An older version is back: of a checkpoint's part, manifest or all, or another artifact's."""

from dataclasses import dataclass

from chaos.harm.damage import IN_STORMS, Damage
from chaos.ports.disks import Mode


@dataclass(frozen=True, slots=True)
class RollBack(Damage):
    """What is read was right once, and is not now."""

    kind: str = "roll_back"
    mode: Mode = Mode.ROLL_BACK


FAULT = RollBack()
TEMPLATE = IN_STORMS
