"""What saved runs have exercised: phase x fault x invariant, and what none of them did."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import product

from chaos.figures.phases import Phase, phases_of
from chaos.history import History, items
from chaos.model import JsonMap, JsonValue, Landed, Verdict

SCHEMA = "chaos_coverage_v1"


class State(StrEnum):
    """What is known of a cell; of several runs the first of these that one of them gave.

    A fault that missed says nothing, whatever the invariants say. UNKNOWN: the fault landed and
    the judge could not decide.
    """

    FAIL = "FAIL"
    PASS = "PASS"  # noqa: S105 (no password)
    UNKNOWN = "UNKNOWN"
    MISSED = "MISSED"
    NOT_EXERCISED = "NOT EXERCISED"

    @staticmethod
    def first(states: "Iterable[State]") -> "State":
        """Return the state that counts, NOT EXERCISED where there is none."""
        found = set(states)
        return next((state for state in State if state in found), State.NOT_EXERCISED)


OF_VERDICT = {
    Verdict.VALID: State.PASS,
    Verdict.VIOLATED: State.FAIL,
    Verdict.UNKNOWN: State.UNKNOWN,
}
Cell = tuple[Phase, str, str]


@dataclass(frozen=True, slots=True)
class SavedRun:
    """A run directory: its name, its history and what its verdict.json holds."""

    name: str
    history: History
    verdict: JsonMap


@dataclass(frozen=True, slots=True)
class Seen:
    """One fault of one run, seen by one invariant."""

    phase: Phase
    fault: str
    invariant: str
    state: State
    run: str


@dataclass(slots=True)
class Coverage:
    """The cells of all runs; `faults` and `invariants` are those that there are."""

    faults: tuple[str, ...]
    invariants: tuple[str, ...]
    runs: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    cells: dict[Cell, dict[State, list[str]]] = field(default_factory=dict)
    _seen: dict[tuple[Phase | None, str | None, str | None], set[State]] = field(
        default_factory=dict
    )

    def add(self, seen: Seen) -> None:
        """Count one more."""
        states = self.cells.setdefault((seen.phase, seen.fault, seen.invariant), {})
        states.setdefault(seen.state, []).append(seen.run)
        coordinates = product((seen.phase, None), (seen.fault, None), (seen.invariant, None))
        for each in coordinates:
            self._seen.setdefault(each, set()).add(seen.state)

    def state(
        self, *, phase: Phase | None = None, fault: str | None = None, invariant: str | None = None
    ) -> State:
        """Return the state of all cells with these coordinates."""
        return State.first(self._seen.get((phase, fault, invariant), ()))

    def counts(self) -> dict[State, int]:
        """Return how many cells are in each state; those of a fault that never fired are none."""
        found = [State.first(states) for cell, states in self.cells.items() if _is_real(cell)]
        told = {state: found.count(state) for state in State}
        phases = len(Phase) - 1
        told[State.NOT_EXERCISED] = phases * len(self.faults) * len(self.invariants) - len(found)
        return told

    def never(self) -> dict[str, list[JsonValue]]:
        """Return the faults, phases and invariants that no run exercised with a landed fault."""
        none = {State.NOT_EXERCISED, State.MISSED}
        return {
            "faults": [name for name in self.faults if self.state(fault=name) in none],
            "phases": [
                each.name.lower()
                for each in Phase
                if each is not Phase.NEVER and self.state(phase=each) in none
            ],
            "invariants": [name for name in self.invariants if self.state(invariant=name) in none],
        }

    def to_json(self) -> dict[str, JsonValue]:
        """Return it as JSON; a cell that is not listed is NOT EXERCISED."""
        return {
            "schema": SCHEMA,
            "runs": [*self.runs],
            "left_out": [*self.left_out],
            "phases": {phase.name.lower(): str(phase) for phase in Phase},
            "faults": [*self.faults],
            "invariants": [*self.invariants],
            "counts": {str(state): count for state, count in self.counts().items()},
            "never": {what: [*names] for what, names in self.never().items()},
            "cells": [_told(cell, states) for cell, states in sorted(self.cells.items())],
        }


def cover(runs: Sequence[SavedRun], faults: Iterable[str], invariants: Iterable[str]) -> Coverage:
    """Return what runs have covered; those of a build with a planted bug are left out."""
    planted = [run.name for run in runs if run.history.one("plan").get("planted")]
    told = [run for run in runs if run.name not in planted]
    seen = [each for run in told for each in of_run(run)]
    found = Coverage(
        tuple(sorted({*faults, *(each.fault for each in seen)})),
        tuple(sorted({*invariants, *(each.invariant for each in seen)})),
        tuple(run.name for run in told),
        tuple(f"{name}: a build with a planted bug" for name in planted),
    )
    for each in seen:
        found.add(each)
    return found


def of_run(run: SavedRun) -> Iterator[Seen]:
    """Yield each fault of a run in each phase that it hit, as each invariant saw it."""
    verdicts = {str(each["name"]): str(each["verdict"]) for each in _of(run, "invariants")}
    for fault in _of(run, "faults"):
        has_landed = fault.get("landed") == Landed.LANDED
        for phase in phases_of(run.history, str(fault["id"])):
            for name, verdict in verdicts.items():
                state = OF_VERDICT[Verdict(verdict)] if has_landed else State.MISSED
                yield Seen(phase, str(fault["kind"]), name, state, run.name)


def _of(run: SavedRun, name: str) -> list[dict[str, JsonValue]]:
    return items(run.verdict.get(name))


def _is_real(cell: Cell) -> bool:
    return cell[0] is not Phase.NEVER


def _told(cell: Cell, states: Mapping[State, list[str]]) -> JsonValue:
    phase, fault, invariant = cell
    return {
        "phase": phase.name.lower(),
        "fault": fault,
        "invariant": invariant,
        "state": str(State.first(states)),
        "runs": {str(state): len(names) for state, names in states.items()},
        "example": next(iter(states[State.first(states)])),
    }
