"""Every fsync of a process takes longer, as on a disk that others keep busy."""

import time
from dataclasses import dataclass

from chaos.harm.syscalls import AtCall
from chaos.history import integer, text
from chaos.model import JsonMap
from chaos.ports import Scene
from chaos.ports.tracers import Injection
from chaos.schedule import Draw
from chaos.storm import Aim, Template
from chaos.syscalls_trace import Syscall

CALLS = "fsync,fdatasync"
PROBE = bytes(64)


@dataclass(frozen=True, slots=True)
class SlowFsync(AtCall):
    """Parameters `delay_ms`, `hold_ms` and `path`.

    Landed where the trace shows a delayed fsync. At the coordinator an upload is timed
    meanwhile: evidence beside it.
    """

    kind: str = "slow_fsync"

    def injection(self, params: JsonMap) -> Injection:
        """Delay the return of each call."""
        delay_us = 1000 * (integer(params.get("delay_ms")) or 0)
        return Injection(CALLS, f"delay_exit={delay_us}", "1+", text(params.get("path")))

    def hit(self, call: Syscall) -> bool:
        """Whether it was delayed."""
        return call.delayed

    def enough(self, hits: tuple[Syscall, ...], params: JsonMap) -> bool:
        """Hold for the whole time."""
        return False

    def feel(self, scene: Scene) -> JsonMap:
        """Time an upload, which is answered once it is on disk."""
        began, name = time.monotonic(), f"chaos/{scene.action.fault_id}"
        answer = scene.world.runtime.store(name, PROBE)
        return {"upload_s": round(time.monotonic() - began, 3), "upload_status": answer.status}


FAULT = SlowFsync()


def _drawn(draw: Draw, fault_id: str) -> JsonMap:
    return {
        "delay_ms": draw.integer(fault_id, "delay_ms", 100, 500),
        "hold_ms": draw.integer(fault_id, "hold_ms", 2000, 5000),
    }


TEMPLATE = Template(_drawn, aims=(Aim.COORDINATOR,))
