"""Every fsync of a process takes longer, as on a disk that others keep busy."""

import time
from dataclasses import dataclass

from chaos.harm.syscalls import AtCall
from chaos.history import integer, text
from chaos.model import JsonMap
from chaos.ports import Scene
from chaos.ports.tracers import Injection
from chaos.syscalls_trace import Syscall

CALLS = "fsync,fdatasync"
PROBE = bytes(64)


@dataclass(frozen=True, slots=True)
class SlowFsync(AtCall):
    """Parameters `delay_ms`, `hold_ms` and `path`.

    Landed where the trace shows a delayed fsync. At the coordinator canary uploads are timed
    before, during and after: evidence beside it.
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

    def fire(self, scene: Scene) -> JsonMap:
        """Time an upload before and after."""
        before_s = _probe(scene, "before")
        fired = super(SlowFsync, self).fire(scene)
        return {**fired, "probe_before_s": before_s, "probe_after_s": _probe(scene, "after")}


def _probe(scene: Scene, name: str) -> float:
    began = time.monotonic()
    scene.world.runtime.store(f"chaos/{scene.action.fault_id}/{name}", PROBE)
    return round(time.monotonic() - began, 4)


FAULT = SlowFsync()
