"""Two trees of checkpoints of the same job, compared: at one step, or where they part first."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from flashruntime.checkpoint import lineage
from flashruntime.checkpoint.difference import Comparison, Difference, compare_parts
from flashruntime.checkpoint.store import Resume, load, steps

Compare = Callable[[Resume, Resume], Comparison]


@dataclass(frozen=True, slots=True)
class Origin:
    """The first checkpoint that differs after a single kill; `equal_step` is the last equal one."""

    step: int
    equal_step: int | None
    killed_at: int | None
    resumed_from: int | None
    differences: list[Difference]


@dataclass(frozen=True, slots=True)
class Trees:
    """The undisturbed tree and the other; `compare` has a comparison by framework."""

    undisturbed: Path
    disturbed: Path
    compare: Mapping[str, Compare]

    def common(self) -> list[int]:
        """Return the steps of which both have a checkpoint, newest first."""
        other = set(steps(self.disturbed))
        return [step for step in steps(self.undisturbed) if step in other]

    def at(self, step: int) -> Comparison:
        """Compare both checkpoints of `step`; one that cannot be used is a difference."""
        first, second = _load(self.undisturbed, step), _load(self.disturbed, step)
        for found, whose in (first, "undisturbed run"), (second, "run with kills"):
            if isinstance(found, str):
                what = f"checkpoint of step {step} of the {whose}"
                return Comparison([Difference(what, found)], [])
        assert isinstance(first, Resume)  # noqa: S101 (for the type checker)
        assert isinstance(second, Resume)  # noqa: S101 (for the type checker)
        if first.manifest.framework == second.manifest.framework:
            return self.compare.get(first.manifest.framework, compare_parts)(first, second)
        return compare_parts(first, second)

    def first_difference(
        self, ignored: Iterable[str]
    ) -> tuple[int, int | None, list[Difference]] | None:
        """Return the first step that differs, the last before it, and what differs there."""
        left_out, equal_step = set(ignored), None
        for step in reversed(self.common()):
            found = [each for each in self.at(step).differences if each.what not in left_out]
            if found:
                return step, equal_step, found
            equal_step = step
        return None


def size_bytes(tree: Path) -> int:
    """Return the size of the newest checkpoint of a tree, 0 if there is none."""
    newest = next(iter(steps(tree)), None)
    found = None if newest is None else _load(tree, newest)
    return sum(map(len, found.parts.values())) if isinstance(found, Resume) else 0


def _load(tree: Path, step: int) -> Resume | str:
    """Return the checkpoint of a step, or why it cannot be used."""
    admits = lineage.admission(tree)
    found = load(tree, step, admits)
    return found if isinstance(found, Resume) else f"is {found.kind}: {found.reason}"
