"""A process is killed at one of its system calls, before the call does anything."""

from dataclasses import dataclass

from chaos.harm.syscalls import COORDINATOR, AtCall, call_of, when
from chaos.history import integer, text
from chaos.model import JsonMap, Landed, Receipt
from chaos.ports import Scene
from chaos.ports.processes import container_in
from chaos.ports.tracers import Injection
from chaos.schedule import Draw
from chaos.storm import Aim, Template
from chaos.syscalls_trace import Syscall

DEATH_S = 10.0
KILLED = 137


@dataclass(frozen=True, slots=True)
class KillAtSyscall(AtCall):
    """Parameters as in `AtCall`.

    Landed where the trace ends in such a call that never returned and, of the coordinator, the
    engine tells of exit code 137.
    """

    kind: str = "kill_at_syscall"

    def injection(self, params: JsonMap) -> Injection:
        """Kill at the nth call."""
        return Injection(call_of(params), "signal=KILL", when(params), text(params.get("path")))

    def hit(self, call: Syscall) -> bool:
        """Whether the process ended in it."""
        return call.result is None

    def undo(self, scene: Scene) -> tuple[tuple[str, JsonMap], ...]:
        """Detach, and start the container again."""
        detach = super(KillAtSyscall, self).undo(scene)
        container = scene.target().container
        service = container.service if container else ""
        return (*detach, ("start_container", {"service": service}))

    def receipt(self, scene: Scene, fired: JsonMap) -> Receipt:
        """Compare the trace with the engine's word."""
        container, on_ns = container_in(fired), integer(fired["on_ns"]) or 0
        if container.service != COORDINATOR:
            return super(KillAtSyscall, self).receipt(scene, fired)
        death = scene.world.containers.wait_death(container, on_ns, DEATH_S)
        exit_code = death.exit_code if death else None
        evidence: JsonMap = {
            **fired,
            "exit_code": exit_code,
            "died_ns": death.at_ns if death else None,
        }
        if (exit_code == KILLED) is not bool(fired["hits"]):
            return Receipt(Landed.INCONCLUSIVE, evidence, took_effect_ns=on_ns)
        landed = Landed.LANDED if fired["hits"] else Landed.MISSED
        return Receipt(landed, evidence, took_effect_ns=death.at_ns if death else on_ns)


FAULT = KillAtSyscall()


def _drawn(draw: Draw, fault_id: str) -> JsonMap:
    nth = draw.integer(fault_id, "nth", 1, 8)
    return {"call": "fdatasync", "nth": nth, "hold_ms": 15_000}


TEMPLATE = Template(_drawn, aims=(Aim.COORDINATOR,))
