"""A request arrives and is carried out, its answer is cut on the way: at claim, complete, submit.

Answers are delayed first; when the coordinator shows that it has acted, every connection of the
listener is closed with the answer still in it, and it opens again at once, without a delay.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from chaos.canaries import PATIENCE_S, SLACK, json_of, path_of, who
from chaos.history import integer, mapping, text
from chaos.model import JsonMap, Landed, Observation, Receipt, Target
from chaos.ports import Line, Scene, Toxic

CLIENTS, SUBMIT = "clients", "submit"
LATENCY_MS = 1500
HEARING_S = 20.0
TICK_S = 0.05
ROUTE = "/v1alpha1/jobs"
EVENTS = {"claim": "LEASE_CLAIMED", "complete": "TASK_COMMIT_ACCEPTED"}
HEARD = {"claim": "lease_claimed", "complete": "attempt_accepted"}
UNANSWERED = "coordinator_unreachable"


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request that was carried out: not before `at_ns`; for which lease, or which job."""

    at_ns: int
    lease_id: str | None = None
    job_id: str | None = None


@dataclass(frozen=True, slots=True)
class LostAnswer:
    """Parameters `call` (claim, complete, submit) and `latency_ms`.

    Landed where the coordinator acted less than the delay before the cut, a canary felt the delay,
    and the caller shows that it heard nothing: it complains, or repeats the call, after the cut.
    """

    kind: str = "lost_answer"

    def undo(self, scene: Scene) -> tuple[tuple[str, JsonMap], ...]:
        """Remove the delay, and make sure that the listener is there."""
        listener = _listener(scene, scene.target())
        toxics: JsonMap = {"listener": listener, "names": [scene.action.fault_id]}
        return (("open_listener", {"listener": listener}), ("remove_toxics", toxics))

    def fire(self, scene: Scene) -> JsonMap:
        """Delay answers, wait until the request was carried out, cut."""
        target, network, name = scene.target(), scene.world.network, scene.action.fault_id
        listener, call = _listener(scene, target), str(scene.action.params["call"])
        delay = {"latency": _latency_ms(scene)}
        jobs = frozenset(scene.world.runtime.accepted()) if call == SUBMIT else frozenset[str]()
        before = network.canary(listener, PATIENCE_S)
        on_ns = time.monotonic_ns()
        network.add(listener, Toxic(name, "latency", "downstream", delay))
        during = network.canary(listener, PATIENCE_S)
        read_back = [toxic.name for toxic in network.toxics().get(listener, ())]
        if call == SUBMIT:
            arrival = _await_submission(scene, jobs)
        else:
            arrival = _await_arrival(scene, target, call, on_ns)
        cutting_ns = time.monotonic_ns()
        network.renew(listener)
        cut_ns = time.monotonic_ns()
        return {
            **who(target),
            "call": call,
            "listener": listener,
            "on_ns": on_ns,
            "read_back": [*read_back],
            "arrived_ns": arrival.at_ns if arrival else None,
            "arrived_lease_id": arrival.lease_id if arrival else None,
            "job_id": arrival.job_id if arrival else None,
            "cutting_ns": cutting_ns,
            "cut_ns": cut_ns,
            "off_ns": cut_ns,
            "before": json_of(before),
            "during": json_of(during),
            "after": json_of(network.canary(listener, PATIENCE_S)),
        }

    def receipt(self, scene: Scene, fired: JsonMap) -> Receipt:
        """Ask the logs of both sides whether the caller had its answer."""
        if fired["arrived_ns"] is None:
            return Receipt(Landed.MISSED, {**fired, "reason": "no such call was carried out"})
        heard = _await_repeat(scene, fired)
        told: JsonMap = {
            **fired,
            "arrived_ns": heard.arrived_ns or fired["arrived_ns"],
            "answered_ns": heard.answered_ns,
            "complaints": heard.complaints,
            "requests": heard.requests,
            "accepted": [*heard.accepted],
        }
        outcomes = {mapping(fired[when])["outcome"] for when in ("before", "during", "after")}
        if outcomes != {"ok"} or not heard.is_unanswered:
            return Receipt(Landed.INCONCLUSIVE, told, took_effect_ns=integer(fired["cut_ns"]))
        landed = _is_delayed(scene, fired) and _is_cut(scene, told) and not heard.too_early
        return Receipt(
            Landed.LANDED if landed else Landed.MISSED,
            told,
            took_effect_ns=integer(fired["cut_ns"]),
        )


@dataclass(frozen=True, slots=True)
class Heard:
    """What the logs tell of the caller's side."""

    answered_ns: int | None
    complaints: int
    requests: int
    cut_ns: int
    accepted: tuple[str, ...] = ()
    arrived_ns: int | None = None

    @property
    def too_early(self) -> bool:
        """Whether the caller had its answer before the cut."""
        return self.answered_ns is not None and self.answered_ns < self.cut_ns

    @property
    def is_unanswered(self) -> bool:
        """Whether anything shows what the caller heard, and when."""
        return self.answered_ns is not None or self.complaints > 0 or self.requests > 1


def _await_arrival(scene: Scene, target: Target, call: str, on_ns: int) -> Arrival | None:
    def carried_out(seen: Observation) -> Arrival | None:
        for event in seen.events:
            at_ns, lease_id = integer(event.get("mono_ns")) or 0, text(event.get("lease_id"))
            if at_ns > on_ns and event.get("type") == EVENTS[call] and _is_own(event, target, call):
                return Arrival(at_ns, lease_id)
        return None

    scene.wait(lambda seen: carried_out(seen) is not None, scene.remaining_s())
    return carried_out(scene.observation())


def _is_own(event: JsonMap, target: Target, call: str) -> bool:
    """Whether an event speaks of the target: a claim is another one of its node."""
    if call == "complete":
        return event.get("lease_id") == target.lease_id
    node_id = mapping(event.get("data")).get("node_id")
    return node_id == target.node_id and event.get("lease_id") != target.lease_id


def _await_submission(scene: Scene, before: frozenset[str]) -> Arrival | None:
    """Ask for the list of jobs until there is another one than before."""
    runtime = scene.world.runtime
    while scene.remaining_s() > 0:
        looked_ns = time.monotonic_ns()
        scene.wait(lambda _: False, TICK_S)
        if new := [job for job in runtime.accepted() if job not in before]:
            return Arrival(looked_ns, job_id=new[0])
    return None


def _await_repeat(scene: Scene, fired: JsonMap) -> Heard:
    """Read the logs until they tell of an answer, or of a repeated request."""
    deadline = time.monotonic() + HEARING_S
    look = _submitted if fired["call"] == SUBMIT else _worked
    while not _is_told(heard := look(scene, fired)) and time.monotonic() < deadline:
        scene.wait(lambda _: False, TICK_S)
    return heard


def _is_told(heard: Heard) -> bool:
    return heard.answered_ns is not None or heard.requests > 1


def _submitted(scene: Scene, fired: JsonMap) -> Heard:
    """Count what Toxiproxy passed on, by the coordinator's log: what has no answer is repeated."""
    world, since_ns = scene.world, integer(fired["on_ns"]) or 0
    proxies = {each["address"] for each in world.packets.attachments(world.containers.proxy())}
    requests = [
        line
        for line in world.logs.since("coordinator", since_ns)
        if (line.fields.get("route"), line.fields.get("method")) == (ROUTE, "POST")
        and line.fields.get("client") in proxies
    ]
    cut_ns, accepted = integer(fired["cutting_ns"]) or 0, scene.world.runtime.accepted()
    arrived_ns = _began_ns(requests[0]) if requests else None
    return Heard(None, 0, len(requests), cut_ns, accepted, arrived_ns)


def _began_ns(line: Line) -> int:
    """Return when a request arrived whose line was written at its end."""
    took_ms = line.fields.get("duration_ms")
    return line.at_ns - int(took_ms * 1e6 if isinstance(took_ms, int | float) else 0)


def _worked(scene: Scene, fired: JsonMap) -> Heard:
    """Look in the worker's log for its answer, and for its complaints of having none."""
    lines = scene.world.logs.since(str(fired["service"]), integer(fired["on_ns"]) or 0)
    cut_ns, event = integer(fired["cutting_ns"]) or 0, HEARD[str(fired["call"])]
    of_lease = _having(lines, event, lambda line: line.fields.get("lease_id"))
    answered = [line.at_ns for line, lease in of_lease if lease == fired["arrived_lease_id"]]
    unanswered = [line for line, _ in _having(lines, UNANSWERED) if line.at_ns >= cut_ns]
    return Heard(answered[0] if answered else None, len(unanswered), 0, cut_ns)


def _having(
    lines: tuple[Line, ...], event: str, value: Callable[[Line], object] = lambda _: None
) -> list[tuple[Line, object]]:
    return [(line, value(line)) for line in lines if line.fields.get("event") == event]


def _is_delayed(scene: Scene, fired: JsonMap) -> bool:
    before, during = (
        float(str(mapping(fired[when])["elapsed_s"])) for when in ("before", "during")
    )
    return during - before >= SLACK * _latency_ms(scene) / 1e3


def _is_cut(scene: Scene, fired: JsonMap) -> bool:
    """Whether the cut came before the delay of the answer was over."""
    arrived_ns, cut_ns = integer(fired["arrived_ns"]) or 0, integer(fired["cut_ns"]) or 0
    return (cut_ns - arrived_ns) / 1e6 < _latency_ms(scene)


def _latency_ms(scene: Scene) -> int:
    return integer(scene.action.params.get("latency_ms")) or LATENCY_MS


def _listener(scene: Scene, target: Target) -> str:
    return CLIENTS if scene.action.params["call"] == SUBMIT else path_of(target)


FAULT = LostAnswer()
