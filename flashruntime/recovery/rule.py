"""One rule about an uncaught error: what it looks at, and what it then means."""

from collections.abc import Callable
from dataclasses import dataclass

from flashruntime.protocol.failures import FailureClass as C
from flashruntime.recovery.pattern import Pattern
from flashruntime.recovery.raised import Raised

RUNTIME = frozenset(["RuntimeError", "AcceleratorError", "CUDAError", "Error", "DistBackendError"])


@dataclass(frozen=True, slots=True)
class Rule:
    """A name, what it looks at, and the class; `kind` None: the evidence is known to be unclear."""

    name: str
    kind: C
    pattern: Pattern | None = None
    types: frozenset[str] | None = None
    test: Callable[[Raised], bool] | None = None
    hint: str | None = None

    @property
    def is_about_type(self) -> bool:
        """Whether a type's name alone decides, which a bare line cannot prove."""
        return self.pattern is None and self.test is None

    def fits(self, error: Raised) -> bool:
        """Return whether the error is what this rule speaks of."""
        if self.types is not None and error.type_name not in self.types:
            return False
        if self.pattern is not None and self.pattern.match(error.message) is None:
            return False
        return self.test is None or self.test(error)


def text_rule(
    name: str, kind: C, pattern: str, hint: str | None = None, types: frozenset[str] = RUNTIME
) -> Rule:
    """Return a rule about the beginning of the messages of some types."""
    return Rule(name, kind, Pattern(pattern), types, hint=hint)


def types_rule(name: str, kind: C, names: str) -> Rule:
    """Return a rule about types alone."""
    return Rule(name, kind, types=frozenset(names.split()))


def os_rule(name: str, kind: C, numbers: str, hint: str | None = None) -> Rule:
    """Return a rule about the operating system's error numbers."""
    wanted = frozenset(numbers.split())
    return Rule(name, kind, test=lambda error: error.errno_name in wanted, hint=hint)
