"""What the faults offer to storms, found beside them: a new fault joins by itself."""

import importlib
import pkgutil

import chaos.faults
from chaos.model import ChaosError
from chaos.storm import Template


def templates() -> dict[str, Template]:
    """Return the templates by kind; raise ChaosError where something else has that name."""
    found: dict[str, Template] = {}
    for info in pkgutil.iter_modules(chaos.faults.__path__, prefix=f"{chaos.faults.__name__}."):
        module = importlib.import_module(info.name)
        template = getattr(module, "TEMPLATE", None)
        if template is None:
            continue
        if not isinstance(template, Template):
            raise ChaosError(f"{info.name}: TEMPLATE is a {type(template).__name__}, no Template")
        found[module.FAULT.kind] = template
    return found
