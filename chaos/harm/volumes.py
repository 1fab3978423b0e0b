"""A volume that takes nothing for a while: the base of every fault that leaves a disk unusable.

It lasts until the task's attempt fails (`until`: a type of event), at most `hold_ms`, and is over
when the fault has its receipt.
"""

import time
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass

from chaos.history import integer, text
from chaos.model import JsonMap, JsonValue, Landed, Observation, Receipt
from chaos.ports import Disks, Scene
from chaos.ports.disks import Room, Volume
from chaos.ports.values import Stored

TICK_S = 0.25
CANARY = bytes(range(256)) * 512
ASKED = {Volume.ARTIFACTS, Volume.LEDGER}


@dataclass(frozen=True, slots=True)
class Closing(ABC):
    """Parameters `volume`, `hold_ms`, `until`; a subclass says how it closes a volume.

    Landed where a small durable write of the runtime's own user fails with one of `errors` at the
    beginning and at the end, and goes well before and after. The coordinator's volumes get canary
    uploads beside it, whose answers are evidence for judges.
    """

    kind: str
    undo_action: str
    errors: tuple[str, ...]

    @abstractmethod
    def close(self, disks: Disks, volume: Volume) -> Room:
        """Close a volume; also again, where it has opened a little."""

    def undo(self, scene: Scene) -> tuple[tuple[str, JsonMap], ...]:
        """Open the volume again."""
        return ((self.undo_action, {"volume": _volume(scene)}),)

    def fire(self, scene: Scene) -> JsonMap:
        """Close it, hold it closed, open it."""
        target, volume, disks = scene.target(), _volume(scene), scene.world.disks
        before = disks.probe(volume)
        closed = self.close(disks, volume)
        told: dict[str, JsonValue] = {
            "volume": volume,
            "task_id": target.task_id,
            "lease_id": target.lease_id,
            "at_ns": closed.at_ns,
            "before": asdict(before),
            "closed": asdict(closed),
        }
        if closed.refused is not None:
            return {**told, "reason": closed.refused}
        first = disks.probe(volume)
        held = self._hold(scene, volume)
        last = disks.probe(volume)
        scene.undo_now()
        after = disks.probe(volume)
        told |= {"first": asdict(first), "last": asdict(last), "after": asdict(after), **held}
        if volume in ASKED:
            told["canary_after"] = _asked(scene, "after")
        return told

    def receipt(self, scene: Scene, fired: JsonMap) -> Receipt:
        """Compare what the writes got."""
        del scene
        if "reason" in fired:
            return Receipt(Landed.MISSED, fired)
        got = {name: _errno(fired[name]) for name in ("before", "first", "last", "after")}
        closed = got["first"] in self.errors and got["last"] in self.errors
        opened = got["before"] is None and got["after"] is None
        landed = Landed.LANDED if closed and opened else Landed.MISSED
        if closed and not opened:
            landed = Landed.INCONCLUSIVE
        return Receipt(landed, fired, took_effect_ns=integer(fired["at_ns"]))

    def _hold(self, scene: Scene, volume: Volume) -> dict[str, JsonValue]:
        """Keep it closed until what it is waited for has happened, or for its time."""
        params, task_id = scene.action.params, scene.target().task_id
        until, began = text(params.get("until")), time.monotonic()
        hold_s = (integer(params.get("hold_ms")) or 0) / 1e3
        known = len(scene.observation().events)
        answers: list[JsonValue] = []

        def came(seen: Observation) -> bool:
            new = seen.events[known:]
            return any(e.get("type") == until and e.get("task_id") == task_id for e in new)

        while (
            not came(scene.observation())
            and time.monotonic() - began < hold_s
            and scene.remaining_s() > 0
        ):
            if volume in ASKED:
                answers.append(_asked(scene, f"during-{len(answers)}"))
            scene.wait(came, TICK_S)
            self.close(scene.world.disks, volume)
        held: dict[str, JsonValue] = {
            "held_s": round(time.monotonic() - began, 3),
            "until_seen": came(scene.observation()),
        }
        return {**held, **({"canary_during": answers} if volume in ASKED else {})}


def _asked(scene: Scene, name: str) -> JsonValue:
    answer: Stored = scene.world.runtime.store(f"chaos/{scene.action.fault_id}/{name}", CANARY)
    return asdict(answer)


def _volume(scene: Scene) -> Volume:
    return Volume(str(scene.action.params["volume"]))


def _errno(room: JsonValue) -> str | None:
    return text(room.get("errno")) if isinstance(room, dict) else "unknown"
