"""A worker is taken out of its network until somebody else has its task, and put back."""

import time
from dataclasses import dataclass

from chaos.canaries import PATIENCE_S, container_of, felt_of, json_of, path_of, who
from chaos.history import integer, mapping, text
from chaos.model import JsonMap, JsonValue, Landed, NoTarget, Receipt, Target
from chaos.ports import Canary, Scene
from chaos.schedule import Draw
from chaos.storm import Template

SHORT_S = 0.5


@dataclass(frozen=True, slots=True)
class Partition:
    """Parameter `min_hold_ms`, longer than the lease.

    Landed where the engine shows the container in no network, canaries from its own place got
    nowhere at the beginning and at the end, another node claimed in between, and it is back.
    """

    kind: str = "partition"

    def undo(self, scene: Scene) -> tuple[tuple[str, JsonMap], ...]:
        """Put the service's container into its networks again, under its names."""
        container = container_of(_held(scene.target()))
        found: list[JsonValue] = [dict(a) for a in scene.world.packets.attachments(container)]
        if not found:
            raise NoTarget(f"{container.service} is in no network: nothing to take it out of")
        return (("reconnect", {"service": container.service, "attachments": found}),)

    def fire(self, scene: Scene) -> JsonMap:
        """Take it out, wait until the task has another holder, put it back."""
        target, packets = _held(scene.target()), scene.world.packets
        container, listener = container_of(target), path_of(target)
        lease_id = str(target.lease_id)

        def canary(timeout_s: float) -> Canary:
            return packets.canaries(container, listener, 1, timeout_s)[0]

        before, attachments = canary(PATIENCE_S), packets.attachments(container)
        on_ns = time.monotonic_ns()
        packets.detach(container)
        during, alone = canary(SHORT_S), not packets.attachments(container)
        scene.wait(lambda seen: seen.moved_on(lease_id), scene.remaining_s())
        held_s = (time.monotonic_ns() - on_ns) / 1e9
        min_hold_s = (integer(scene.action.params.get("min_hold_ms")) or 0) / 1e3
        scene.wait(lambda _: False, max(0.0, min_hold_s - held_s))
        last, still_out_ns = canary(SHORT_S), time.monotonic_ns()
        packets.attach(container, attachments)
        return {
            **who(target),
            "on_ns": on_ns,
            "still_out_ns": still_out_ns,
            "was_alone": alone,
            "networks": _names(attachments),
            "networks_again": _names(packets.attachments(container)),
            "before": json_of(before),
            "during": json_of(during),
            "last": json_of(last),
            "after": json_of(canary(PATIENCE_S)),
        }

    def receipt(self, scene: Scene, fired: JsonMap) -> Receipt:
        """Look for the claim of another node while it was out."""
        seen, felt = scene.observation(), felt_of(fired)
        claim = seen.next_claim(str(fired["task_id"]), str(fired["lease_id"]))
        claimed_ns = integer(claim.get("mono_ns")) if claim else None
        node = text(mapping(claim.get("data")).get("node_id")) if claim else None
        on_ns, out_ns = integer(fired["on_ns"]), integer(fired["still_out_ns"])
        evidence: JsonMap = {**fired, "next_claim_ns": claimed_ns, "next_node_id": node}
        cut = fired["was_alone"] is True and "ok" not in {felt.during.outcome, felt.last.outcome}
        back = felt.after.outcome == "ok" and fired["networks"] == fired["networks_again"]
        if felt.before.outcome != "ok" or not back:
            return Receipt(Landed.INCONCLUSIVE, evidence, took_effect_ns=on_ns)
        is_taken = (
            claimed_ns is not None
            and on_ns is not None
            and out_ns is not None
            and on_ns < claimed_ns < out_ns
            and node != fired["node_id"]
        )
        return Receipt(
            Landed.LANDED if cut and is_taken else Landed.MISSED,
            evidence,
            took_effect_ns=on_ns,
            lost_lease_id=text(fired["lease_id"]) if cut else None,
        )


def _held(target: Target) -> Target:
    if target.lease_id is None or target.task_id is None:
        raise NoTarget(f"{target.symbol} is no worker with a lease")
    return target


def _names(attachments: object) -> JsonValue:
    found = attachments if isinstance(attachments, list | tuple) else ()
    return [str(each["network"]) for each in found]


FAULT = Partition()


def _drawn(draw: Draw, fault_id: str) -> JsonMap:
    return {"min_hold_ms": draw.integer(fault_id, "min_hold_ms", 3500, 6000)}


TEMPLATE = Template(_drawn, takes=True)
