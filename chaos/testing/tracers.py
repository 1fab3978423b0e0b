"""The twin of tracers: the calls that it returns are set by the test."""

from dataclasses import dataclass, field

from chaos.model import Container
from chaos.ports.tracers import Injection
from chaos.syscalls_trace import Syscall


@dataclass
class FakeTracers:
    """Traces nothing; `seen` are the calls that a tracer sees, `attached` what was asked for."""

    seen: tuple[Syscall, ...] = ()
    attached: dict[str, Injection] = field(default_factory=dict)
    detached: list[str] = field(default_factory=list)

    def attach(
        self, container: Container, name: str, injection: Injection, *, inner: bool = False
    ) -> int:
        """Remember."""
        del container, inner
        self.attached[name] = injection
        return 1

    def calls(self, name: str) -> tuple[Syscall, ...]:
        """Return what is seen, while it is attached."""
        return self.seen if name in self.attached else ()

    def detach(self, name: str) -> None:
        """Remember."""
        self.attached.pop(name, None)
        self.detached.append(name)
