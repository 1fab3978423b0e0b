"""A worker's own path swallows everything, both ways, until somebody else has its task.

The path stays closed when this fault has its receipt: a later fault may go on from there, and
healing opens it.
"""

import time
from dataclasses import dataclass

from chaos.history import integer, text
from chaos.model import JsonMap, Landed, NoTarget, Receipt, Target
from chaos.ports import Scene, Toxic

PROBE_TIMEOUT_S = 0.5
STREAMS = ("upstream", "downstream")


@dataclass(frozen=True, slots=True)
class BlackHole:
    """Parameter `min_hold_ms`, longer than the lease.

    Landed where a probe through the path runs into its timeout at the beginning and at the end,
    and another node claimed the task in between.
    """

    kind: str = "black_hole"

    def undo(self, scene: Scene) -> tuple[tuple[str, JsonMap], ...]:
        """Remove both toxics."""
        args: JsonMap = {"listener": _path(scene.target()), "names": [*_names(scene)]}
        return (("remove_toxics", args),)

    def fire(self, scene: Scene) -> JsonMap:
        """Close the path, and wait until the task has another holder."""
        target, network = scene.target(), scene.world.network
        listener, task_id, lease_id = _path(target), str(target.task_id), str(target.lease_id)
        on_ns = time.monotonic_ns()
        for name, stream in zip(_names(scene), STREAMS, strict=True):
            network.add(listener, Toxic(name, "timeout", stream, {"timeout": 0}))
        first = network.probe(listener, PROBE_TIMEOUT_S)
        scene.wait(lambda seen: seen.moved_on(lease_id), scene.remaining_s())
        held_s = (time.monotonic_ns() - on_ns) / 1e9
        min_hold_s = (integer(scene.action.params.get("min_hold_ms")) or 0) / 1e3
        scene.wait(lambda _: False, max(0.0, min_hold_s - held_s))
        last = network.probe(listener, PROBE_TIMEOUT_S)
        return {
            "listener": listener,
            "service": target.container.service if target.container else None,
            "node_id": target.node_id,
            "task_id": task_id,
            "lease_id": lease_id,
            "on_ns": on_ns,
            "still_closed_ns": time.monotonic_ns(),
            "first_probe": first.outcome,
            "last_probe": last.outcome,
            "toxics": [toxic.name for toxic in network.toxics().get(listener, ())],
        }

    def receipt(self, scene: Scene, fired: JsonMap) -> Receipt:
        """Look for the claim of another node while the path was closed."""
        seen = scene.observation()
        claim = seen.next_claim(str(fired["task_id"]), str(fired["lease_id"]))
        claimed_ns = integer(claim.get("mono_ns")) if claim else None
        node = text(_data(claim).get("node_id")) if claim else None
        closed_ns, on_ns = integer(fired["still_closed_ns"]), integer(fired["on_ns"])
        evidence: JsonMap = {**fired, "next_claim_ns": claimed_ns, "next_node_id": node}
        closed = (fired["first_probe"], fired["last_probe"]) == ("timeout", "timeout")
        taken = (
            claimed_ns is not None
            and on_ns is not None
            and closed_ns is not None
            and on_ns < claimed_ns < closed_ns
            and node != fired["node_id"]
        )
        return Receipt(
            Landed.LANDED if closed and taken else Landed.MISSED,
            evidence,
            took_effect_ns=on_ns,
            lost_lease_id=text(fired["lease_id"]) if closed else None,
        )


def _names(scene: Scene) -> tuple[str, ...]:
    return tuple(f"{scene.action.fault_id}-{stream}" for stream in STREAMS)


def _path(target: Target) -> str:
    if target.listener is None or target.lease_id is None:
        raise NoTarget(f"{target.symbol} is no worker with a lease and a path of its own")
    return target.listener


def _data(event: JsonMap) -> JsonMap:
    data = event.get("data")
    return data if isinstance(data, dict) else {}


FAULT = BlackHole()
