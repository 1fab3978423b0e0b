"""Two files hold one another's bytes: parts of the newest checkpoint, or outputs of one job."""

from dataclasses import dataclass

from chaos.harm.damage import IN_STORMS, Damage
from chaos.ports.disks import Mode


@dataclass(frozen=True, slots=True)
class Swap(Damage):
    """Both are whole, and in each other's place."""

    kind: str = "swap"
    mode: Mode = Mode.SWAP


FAULT = Swap()
TEMPLATE = IN_STORMS
