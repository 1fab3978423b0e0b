"""Writes of a process are answered as done, and nothing is written, as by a disk that lies."""

from dataclasses import dataclass

from chaos.harm.syscalls import AtCall, call_of, when
from chaos.history import text
from chaos.model import JsonMap
from chaos.ports.tracers import Injection
from chaos.syscalls_trace import Syscall

ALL = 1 << 30
"""More bytes than any write has: whoever asks whether all were written is told so."""


@dataclass(frozen=True, slots=True)
class LostWrite(AtCall):
    """Parameters as in `AtCall`; the other writes of the process are lost meanwhile too.

    Landed where the trace shows such a write, injected.
    """

    kind: str = "lost_write"

    def injection(self, params: JsonMap) -> Injection:
        """Answer from the nth call on."""
        path = text(params.get("path"))
        return Injection(call_of(params), f"retval={ALL}", when(params, on=True), path)

    def hit(self, call: Syscall) -> bool:
        """Whether a file lacks it."""
        return call.injected and call.result == ALL


FAULT = LostWrite()
