"""Tables of the documentation that are made from the code, so that they name what there is."""

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.render import table
from chaos import judge, registry
from chaos.plants import PLANTS
from flashruntime.service.app import app

PLANTS_FILE = Path(__file__).parent / "assets" / "planted-bugs.json"


def experiments() -> str:
    """Return every experiment of the harness."""
    lines = [
        (f"`{each.name}`", each.summary, ", ".join(f"`{name}`" for name in each.invariants))
        for each in registry.experiments()
    ]
    return table(
        ("experiment", "what happens", "judged by, besides the standing invariants"), lines
    )


def faults() -> str:
    """Return every fault by its kind."""
    lines = [(f"`{kind}`", _about(fault)) for kind, fault in sorted(registry.faults().items())]
    return table(("fault", "what it does"), lines)


def invariants() -> str:
    """Return every invariant that some run is judged by."""
    named = [
        *judge.STANDING,
        *(name for each in registry.experiments() for name in each.invariants),
    ]
    lines = [
        (f"`{each.name}`", "every run" if each.name in judge.STANDING else "", _about(each.judge))
        for each in registry.invariants(sorted(dict.fromkeys(named)))
    ]
    return table(("invariant", "judges", "what it means"), lines)


def plants() -> str:
    """Return every planted bug, and what the committed run of all of them measured."""
    measured = {each["plant"]: each for each in json.loads(PLANTS_FILE.read_bytes())["plants"]}
    lines = [
        (
            f"`{each.name}`",
            each.bug,
            f"`{each.experiment}`",
            f"`{each.invariant}`",
            "yes" if measured[each.name]["caught"] else "**no**",
            f"{measured[each.name]['seconds']:.0f}",
            f"{each.bound_s:.0f}",
        )
        for each in PLANTS
    ]
    heads = ("plant", "bug", "experiment", "violated invariant", "caught", "took s", "at most s")
    return table(heads, lines)


def routes() -> str:
    """Return every call of the coordinator."""
    lines = [
        (f"`{method.upper()} {path}`", _first_line(call.get("description") or call["summary"]))
        for path, calls in app.openapi()["paths"].items()
        for method, call in calls.items()
    ]
    return table(("call", "what it does"), lines)


TABLES: dict[str, Callable[[], str]] = {
    made.__name__: made for made in (experiments, faults, invariants, plants, routes)
}


def filled(markdown: str) -> str:
    """Return a page with each line `<!-- table: NAME -->` replaced; KeyError for a wrong name."""
    return "\n".join(map(_line, markdown.splitlines())) + "\n"


def _line(line: str) -> str:
    if not (line.startswith("<!-- table:") and line.endswith("-->")):
        return line
    return TABLES[line.removeprefix("<!-- table:").removesuffix("-->").strip()]()


def _about(value: Any) -> str:
    """Return the first sentence of the module in which a part of the harness stands."""
    module = value.__module__ if hasattr(value, "__module__") else type(value).__module__
    return _first_line(importlib.import_module(module).__doc__ or "")


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0] if text.strip() else ""
