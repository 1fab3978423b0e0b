"""System calls of a process fail with an errno, as those of a broken or full disk do."""

from dataclasses import dataclass

from chaos.harm.syscalls import AtCall, call_of, when
from chaos.history import text
from chaos.model import JsonMap
from chaos.ports.tracers import Injection
from chaos.syscalls_trace import Syscall

EIO = "EIO"


@dataclass(frozen=True, slots=True)
class IoError(AtCall):
    """Parameters as in `AtCall`, and `errno` (EIO unless given).

    Landed where the trace shows such a call with that error, injected.
    """

    kind: str = "io_error"

    def injection(self, params: JsonMap) -> Injection:
        """Fail from the nth call on."""
        errno = text(params.get("errno")) or EIO
        path = text(params.get("path"))
        return Injection(call_of(params), f"error={errno}", when(params, on=True), path)

    def hit(self, call: Syscall) -> bool:
        """Whether it failed by our doing."""
        return call.injected and call.errno is not None


FAULT = IoError()
