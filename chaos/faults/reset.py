"""A closed path answers with RST for a while, then opens: whoever was cut off comes back.

Meant to follow a black hole on the same path, whose toxics it takes away.
"""

import time
from dataclasses import dataclass

from chaos.history import integer, text
from chaos.model import JsonMap, Landed, NoTarget, Observation, Receipt, Target
from chaos.ports import Scene, Toxic

PROBE_TIMEOUT_S = 2.0
HOLD_MS = 500
RETURN_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True)
class Reset:
    """Parameter `hold_ms`: how long every new connection is reset.

    Landed where a probe saw the RST, a later one got through, another node had claimed the task
    before anything could pass again, and the coordinator has since heard from the lease that was
    cut off. While answers are reset, requests pass: the path opens when the first toxic goes.
    """

    kind: str = "reset"

    def undo(self, scene: Scene) -> tuple[tuple[str, JsonMap], ...]:
        """Remove the toxic."""
        args: JsonMap = {"listener": _path(scene.target()), "names": [scene.action.fault_id]}
        return (("remove_toxics", args),)

    def fire(self, scene: Scene) -> JsonMap:
        """Reset every connection, then open the path."""
        target, network, name = scene.target(), scene.world.network, scene.action.fault_id
        listener = _path(target)
        swallowing = [toxic.name for toxic in network.toxics().get(listener, ())]
        on_ns = time.monotonic_ns()
        network.add(listener, Toxic(name, "reset_peer", "downstream", {"timeout": 0}))
        opened_ns = time.monotonic_ns()
        for toxic in swallowing:
            network.remove(listener, toxic)
        during = network.probe(listener, PROBE_TIMEOUT_S)
        hold_ms = integer(scene.action.params.get("hold_ms")) or HOLD_MS
        scene.wait(lambda _: False, hold_ms / 1e3)
        network.remove(listener, name)
        after = network.probe(listener, PROBE_TIMEOUT_S)
        return {
            "listener": listener,
            "node_id": target.node_id,
            "task_id": target.task_id,
            "lease_id": target.lease_id,
            "on_ns": on_ns,
            "opened_ns": opened_ns,
            "removed": [*swallowing],
            "during": during.outcome,
            "after": after.outcome,
        }

    def receipt(self, scene: Scene, fired: JsonMap) -> Receipt:
        """Wait for the first word of the lease that was cut off, after the path opened."""
        task_id, lease_id = str(fired["task_id"]), str(fired["lease_id"])
        opened_ns = integer(fired["opened_ns"]) or 0

        def back(seen: Observation) -> list[JsonMap]:
            events = seen.events_of(task_id)
            return [
                event
                for event in events
                if event.get("lease_id") == lease_id
                and (integer(event.get("mono_ns")) or 0) >= opened_ns
            ]

        scene.wait(lambda seen: bool(back(seen)), RETURN_TIMEOUT_S)
        seen = scene.observation()
        returned, claim = back(seen), seen.next_claim(task_id, lease_id)
        claimed_ns = integer(claim.get("mono_ns")) if claim else None
        evidence: JsonMap = {
            **fired,
            "next_claim_ns": claimed_ns,
            "returned": [text(event.get("type")) for event in returned],
            "returned_ns": integer(returned[0].get("mono_ns")) if returned else None,
        }
        cut = (fired["during"], fired["after"]) == ("reset", "ok")
        taken = claimed_ns is not None and claimed_ns < opened_ns
        landed = Landed.LANDED if cut and taken and returned else Landed.MISSED
        return Receipt(landed, evidence, took_effect_ns=integer(fired["on_ns"]))


def _path(target: Target) -> str:
    if target.listener is None or target.task_id is None:
        raise NoTarget(f"{target.symbol} is no worker with a task and a path of its own")
    return target.listener


FAULT = Reset()
