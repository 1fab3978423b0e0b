"""Finds the scenarios, and fails loudly on a missing object, method or a duplicate name."""

import importlib
import pkgutil
from collections.abc import Iterable
from difflib import get_close_matches
from types import ModuleType

import benchmarks.scenarios
from benchmarks.scenario import Scenario
from benchmarks.schema import BenchError, UsageError


def scenarios(package: ModuleType = benchmarks.scenarios) -> tuple[Scenario, ...]:
    """Return every scenario, performance first, by name."""
    found: dict[str, Scenario] = {}
    for info in pkgutil.iter_modules(package.__path__, prefix=f"{package.__name__}."):
        scenario = getattr(importlib.import_module(info.name), "SCENARIO", None)
        if not isinstance(scenario, Scenario):
            raise BenchError(f"{info.name} has no SCENARIO; every module there must have one")
        if not (scenario.method or "").strip():
            raise BenchError(f"{info.name} does not state its method; give it a module docstring")
        if scenario.name in found:
            raise BenchError(f"{info.name}: the name {scenario.name!r} is taken; choose another")
        found[scenario.name] = scenario
    return tuple(sorted(found.values(), key=lambda each: (each.section, each.name)))


def chosen(names: Iterable[str]) -> tuple[Scenario, ...]:
    """Return scenarios by name, in this order; UsageError with the known names."""
    known = {scenario.name: scenario for scenario in scenarios()}
    wanted = list(dict.fromkeys(names))
    for name in wanted:
        if name not in known:
            close = get_close_matches(name, known, n=1)
            hint = f", did you mean {close[0]!r}?" if close else "."
            raise UsageError(f"no scenario {name!r}{hint} Known: {', '.join(known) or 'none'}")
    return tuple(known[name] for name in wanted)
