"""Damage checkpoints of a task's tree, newest first, and say what was read before and after.

Request: {"root", "mode", "depth", "choice"}; `depth` is how many of the newest committed steps are
hit. Answer: {"at_ns", "reason", "steps": [{"step", "manifest_id", "attempt_id", "counts", "files":
[{"path", "before", "after"}]}]}. Where a mode has nothing to work on, `reason` says so and nothing
was touched. `counts` is false where the step is as good as before, as beside a foreign file.
"""

import json
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from chaos.targets.inside.bytework import MODES, Spot, put, read_by_another, sync_directory
from chaos.targets.inside.tree import STEP

MANIFEST = "manifest.json"
FOREIGN = "foreign_file"


class NothingToHit(LookupError):
    """The mode has nothing to work on."""


@dataclass(frozen=True, slots=True)
class Step:
    """A committed step."""

    number: int
    directory: Path
    manifest: dict[str, Any]

    @property
    def parts(self) -> dict[str, str]:
        """Part name -> sha256, as the manifest states them."""
        return {part["key"]: part["sha256"] for part in self.manifest["parts"]}

    def part(self, spot: Spot) -> str:
        """Return the part that is hit."""
        return [*self.parts][spot.number % len(self.parts)]


@dataclass(frozen=True, slots=True)
class Blow:
    """What is done to one step: `files` may change, `strike` changes them."""

    step: Step
    files: tuple[Path, ...]
    strike: Callable[[], None]


def committed(root: Path) -> list[Step]:
    """Return the steps that have a readable manifest, newest first."""
    found = []
    for entry in root.iterdir() if root.is_dir() else ():
        match = STEP.fullmatch(entry.name)
        try:
            manifest = json.loads((entry / MANIFEST).read_bytes()) if match else None
        except (OSError, ValueError):
            continue
        if match and isinstance(manifest, dict) and manifest.get("parts"):
            found.append(Step(int(match[1]), entry, manifest))
    return sorted(found, key=lambda step: step.number, reverse=True)


def part_blow(mode: str, step: Step, spot: Spot) -> Blow:
    """Hit one part alone."""
    path = step.directory / step.part(spot)
    return Blow(step, (path,), lambda: MODES[mode](path, path, spot))


def swap_blow(mode: str, step: Step, spot: Spot) -> Blow:
    """Hit a part together with another one of the step that holds other bytes."""
    key = step.part(spot)
    others = [name for name, sha256 in step.parts.items() if sha256 != step.parts[key]]
    if not others:
        raise NothingToHit(f"step {step.number} has no two parts with different bytes")
    path, other = step.directory / key, step.directory / others[spot.bit % len(others)]
    return Blow(step, (path, other), lambda: MODES[mode](path, other, spot))


def roll_back_blow(step: Step, older: Step, spot: Spot) -> Blow:
    """Put an older step's version in place of a part, of the manifest, or of all files."""
    changed = [key for key in step.parts if older.parts.get(key) != step.parts[key]]
    common = [key for key in changed if key in older.parts]
    chosen = ((common or [MANIFEST])[:1], [MANIFEST], [*older.parts, MANIFEST])[spot.number % 3]

    def strike() -> None:
        for name in chosen:
            put(step.directory / name, (older.directory / name).read_bytes())
        sync_directory(step.directory)

    return Blow(step, tuple(step.directory / name for name in chosen), strike)


def manifest_blow(mode: str, step: Step, spot: Spot) -> Blow:
    """Hit the manifest."""
    path = step.directory / MANIFEST
    return Blow(step, (path,), lambda: MODES[mode](path, path, spot))


def foreign_blow(step: Step, gap: int, spot: Spot) -> Blow:
    """Leave a stray file in the newest step, a file named like the next step, or a copy so named.

    All of them stand where the runtime reads, and none of them makes a step worse.
    """
    stray = step.directory / "stray.bin"
    following = step.directory.with_name(f"step-{step.number + gap:06d}")
    if spot.number % 3 == 0:
        return Blow(step, (stray,), lambda: put(stray, spot.noise))
    if spot.number % 3 == 1:
        return Blow(step, (following,), lambda: put(following, spot.noise))

    def copy() -> None:
        shutil.copytree(step.directory, following)
        sync_directory(following.parent)

    return Blow(step, (following / MANIFEST,), copy)


def blows(mode: str, steps: list[Step], depth: int, spot: Spot) -> list[Blow]:
    """Return a blow for each of the newest `depth` steps; raise NothingToHit before any is done."""
    older = 1 if mode == "roll_back" else 0
    if not steps or len(steps) < depth + older:
        raise NothingToHit(f"{len(steps)} committed steps, {mode} of {depth} needs more")
    if mode == FOREIGN:
        gap = steps[0].number - steps[1].number if len(steps) > 1 else 1
        return [foreign_blow(steps[0], gap, spot)]
    if mode == "roll_back":
        pairs = pairwise(steps[: depth + 1])
        return [roll_back_blow(step, before, spot) for step, before in pairs]
    blow = {"swap": swap_blow, "garbage_manifest": manifest_blow}.get(mode, part_blow)
    return [blow(mode, step, spot) for step in steps[:depth]]


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Strike, newest step first, and tell; the time is taken when all of it is durable."""
    root, mode = Path(request["root"]), str(request["mode"])
    try:
        planned = blows(mode, committed(root), request["depth"], Spot.of(request["choice"]))
    except NothingToHit as error:
        return {"at_ns": time.monotonic_ns(), "reason": str(error), "steps": []}
    before = [[read_by_another(path) for path in blow.files] for blow in planned]
    for blow in planned:
        blow.strike()
    struck_ns = time.monotonic_ns()
    told = [
        told_of(root, blow, was, counts=mode != FOREIGN)
        for blow, was in zip(planned, before, strict=True)
    ]
    return {"at_ns": struck_ns, "reason": None, "steps": told}


def told_of(root: Path, blow: Blow, before: list[str | None], *, counts: bool) -> dict[str, Any]:
    """Describe what became of one step."""
    files = [
        {"path": str(path.relative_to(root)), "before": was, "after": read_by_another(path)}
        for path, was in zip(blow.files, before, strict=True)
    ]
    names = {key: blow.step.manifest.get(key) for key in ("manifest_id", "attempt_id")}
    return {"step": blow.step.number, **names, "counts": counts, "files": files}
