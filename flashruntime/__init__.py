"""flashruntime: a fault-tolerant runtime for ML training jobs."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flashruntime.errors import Conflict, FlashError, InvalidInput
    from flashruntime.sdk.run import Run, RunState
    from flashruntime.sdk.submit import submit
    from flashruntime.sdk.workload import CommandWorkload, OutputSpec, Resources, Source

__version__ = "0.1.0"
__all__ = [
    "CommandWorkload",
    "Conflict",
    "FlashError",
    "InvalidInput",
    "OutputSpec",
    "Resources",
    "Run",
    "RunState",
    "Source",
    "__version__",
    "submit",
]
_HOMES = {
    "flashruntime.errors": ("Conflict", "FlashError", "InvalidInput"),
    "flashruntime.sdk.run": ("Run", "RunState"),
    "flashruntime.sdk.submit": ("submit",),
    "flashruntime.sdk.workload": ("CommandWorkload", "OutputSpec", "Resources", "Source"),
}


def __getattr__(name: str) -> object:
    """Import a public name at its first use, so that an in-script `import` stays cheap."""
    for home, names in _HOMES.items():
        if name in names:
            return globals().setdefault(name, getattr(import_module(home), name))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
