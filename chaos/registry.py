"""Finds what is in the packages of the harness, and fails loudly on a missing or duplicate name."""

import importlib
import pkgutil
from collections.abc import Iterable
from difflib import get_close_matches
from types import ModuleType
from typing import Any, TypeVar

import chaos.experiments
import chaos.faults
import chaos.invariants
import chaos.payloads
import chaos.workloads
from chaos.model import ChaosError, UsageError
from chaos.ports import Fault, Invariant, Machine, Workload
from chaos.schedule import Experiment

PLANT = "planted_"
T = TypeVar("T")


def experiments() -> tuple[Experiment, ...]:
    """Return every experiment, in the order of `list`."""
    found: dict[str, Experiment] = _walk(chaos.experiments, "EXPERIMENT", "name")
    return tuple(sorted(found.values(), key=lambda experiment: (experiment.order, experiment.name)))


def experiment(name: str) -> Experiment:
    """Return one experiment; raise UsageError with the known names."""
    known = {found.name: found for found in experiments()}
    if name not in known:
        close = get_close_matches(name, known, n=1)
        hint = f", did you mean {close[0]!r}?" if close else "."
        raise UsageError(f"no experiment {name!r}{hint} Known: {', '.join(known) or 'none'}")
    return known[name]


def faults() -> dict[str, Fault]:
    """Return every fault by kind."""
    return _walk(chaos.faults, "FAULT", "kind")


def workload(name: str) -> Workload:
    """Return a workload; raise UsageError where there is none."""
    found: dict[str, Workload] = _walk(chaos.workloads, "WORKLOAD", "name")
    return _chosen(found, "workload", [name])[0]


def invariants(names: Iterable[str]) -> tuple[Invariant, ...]:
    """Return invariants in this order; raise UsageError where there is none of a name."""
    found: dict[str, Invariant] = _walk(chaos.invariants, "INVARIANT", "name")
    return tuple(_chosen(found, "invariant", names))


def plants() -> tuple[str, ...]:
    """Return the names of the bugs that can be planted into the runtime."""
    names = [info.name for info in pkgutil.iter_modules(chaos.payloads.__path__)]
    return tuple(name.removeprefix(PLANT) for name in names if name.startswith(PLANT))


def machine() -> Machine:
    """Return this machine; its adapters need the extra `chaos`, so they are imported here."""
    from chaos.targets.machine import DockerMachine  # noqa: PLC0415 (optional extra)

    return DockerMachine()


def _walk(package: ModuleType, attribute: str, key: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for info in pkgutil.iter_modules(package.__path__, prefix=f"{package.__name__}."):
        value = getattr(importlib.import_module(info.name), attribute, None)
        if value is None:
            raise ChaosError(f"{info.name} has no {attribute}; every module there must have one")
        name = getattr(value, key)
        if name in found:
            raise ChaosError(f"{info.name}: the name {name!r} is taken; choose another")
        found[name] = value
    return found


def _chosen(found: dict[str, T], what: str, names: Iterable[str]) -> list[T]:
    chosen = list(names)
    if unknown := [name for name in chosen if name not in found]:
        raise UsageError(f"no {what} {unknown[0]!r}; known: {', '.join(sorted(found)) or 'none'}")
    return [found[name] for name in chosen]
