"""A checkpoint of another machine brought into a tree: its chain takes it over, nothing older."""

import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from flashruntime.checkpoint import adopt, lineage, notes
from flashruntime.checkpoint.adopt import Predecessor
from flashruntime.checkpoint.manifest import MANIFEST_NAME, step_name
from flashruntime.checkpoint.store import REJECTED, load_manifest
from flashruntime.errors import ArtifactCorrupt, CheckpointError
from flashruntime.protocol.checkpoints import Manifest, Part, TakenOver
from tests.unit.checkpoint.conftest import Tree


class Calendar:
    def monotonic_ns(self) -> int:
        return 1

    def utc_now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)


class Elsewhere:
    """Another machine's tree as a source."""

    def __init__(self, root: Path) -> None:
        self.tree = Tree(root)

    def manifest(self, step: int) -> Manifest:
        found = load_manifest(self.tree.root, step)
        assert isinstance(found, Manifest)
        return found

    def taken(self, step: int) -> TakenOver:
        return TakenOver(step=step, manifest_id=self.manifest(step).manifest_id)

    def data(self, step: int) -> bytes:
        return (self.tree.root / step_name(step) / MANIFEST_NAME).read_bytes()

    def bring(self, root: Path, step: int, *known: Predecessor) -> None:
        adopt.record_lineage(root, "job-1", known, Calendar())

        def fetch(part: Part, to: Path) -> None:
            shutil.copyfile(self.tree.root / step_name(step) / part.key, to)

        adopt.adopt(root, self.data(step), "me", fetch)


@pytest.fixture
def elsewhere(tmp_path: Path) -> Elsewhere:
    return Elsewhere(tmp_path / "elsewhere")


def resumed(tree: Tree, epoch: int) -> int | None:
    """Begin as the attempt `epoch` of the job and return where it resumes."""
    tree.attempts += [None] * (epoch - len(tree.attempts))  # type: ignore[list-item]
    found = tree.begin().resume()
    return None if found is None else found.step


FIRST = Predecessor("attempt-0", 0, None)


def test_an_empty_tree_takes_over_what_was_brought(
    tree: Tree, elsewhere: Elsewhere, save: Any, content: Any
) -> None:
    save(elsewhere.tree.begin(), 10, 20)
    elsewhere.bring(tree.root, 20, FIRST)
    found = (tree.attempts.append(None), tree.begin().resume())[1]  # type: ignore[arg-type, func-returns-value]
    assert found is not None
    assert {key: bytes(data) for key, data in found.parts.items()} == content(20)
    assert elsewhere.data(20) == (tree.step(20) / MANIFEST_NAME).read_bytes(), "byte for byte"
    assert not list((tree.root / ".staging").glob("*")), "nothing is left of the way there"


def test_what_a_superseded_attempt_left_here_is_foreign(
    tree: Tree, elsewhere: Elsewhere, save: Any
) -> None:
    """Attempt 0 here saved 30 after attempt 1 elsewhere had gone on from 20."""
    save(tree.begin(), 10, 20, 30)
    shutil.copytree(tree.root, elsewhere.tree.root)
    shutil.rmtree(elsewhere.tree.step(30))
    elsewhere.tree.attempts.append(tree.attempts[0])
    save(elsewhere.tree.begin(), 25)
    second = Predecessor("attempt-1", 1, elsewhere.taken(20))
    adopt.record_lineage(tree.root, "job-1", [FIRST, second], Calendar())
    assert adopt.newest_intact(tree.root, 25, {"attempt-0", "attempt-1"}) is None
    elsewhere.bring(tree.root, 25, FIRST, second)
    assert resumed(tree, 2) == 25
    assert tree.kinds()["step-000030"] == "foreign"


def test_a_foreign_step_in_the_way_goes_to_the_quarantine(
    tree: Tree, elsewhere: Elsewhere, save: Any
) -> None:
    save(tree.begin(), 20, 25)
    shutil.copytree(tree.root, elsewhere.tree.root)
    shutil.rmtree(elsewhere.tree.step(25))
    elsewhere.tree.attempts.append(tree.attempts[0])
    save(elsewhere.tree.begin(), 25)
    second = Predecessor("attempt-1", 1, elsewhere.taken(20))
    elsewhere.bring(tree.root, 25, second)
    assert resumed(tree, 2) == 25
    assert len(list((tree.root / ".quarantine").glob("step-000025.*"))) == 2


def test_an_unsent_newer_checkpoint_here_is_kept_where_nobody_went_past_it(
    tree: Tree, elsewhere: Elsewhere, save: Any
) -> None:
    save(tree.begin(), 10, 20, 30)
    adopt.record_lineage(tree.root, "job-1", [FIRST], Calendar())
    found = adopt.newest_intact(tree.root, 20, {"attempt-0"})
    assert found is not None
    assert found.step == 30
    part = tree.step(30) / "model.bin"
    part.write_bytes(b"x" * part.stat().st_size)
    found = adopt.newest_intact(tree.root, 20, {"attempt-0"})
    assert found is not None
    assert found.step == 20, "one that has rotted is none"
    assert adopt.newest_intact(tree.root, 25, {"attempt-0"}) is None


def test_an_attempt_in_vain_here_that_saved_elsewhere_counts(
    tree: Tree, elsewhere: Elsewhere, save: Any
) -> None:
    """It began from a step that is gone here and saved only elsewhere: its fence must stand."""
    save(tree.begin(), 10, 30)
    taken = TakenOver(step=20, manifest_id="ckpt-gone")
    adopt.record_lineage(tree.root, "job-1", [Predecessor("attempt-1", 1, taken)], Calendar())
    assert adopt.newest_intact(tree.root, 0, {"attempt-1"}).step == 10  # type: ignore[union-attr]
    assert adopt.newest_intact(tree.root, 0, ()).step == 30  # type: ignore[union-attr]


def test_recording_attempts_again_changes_nothing(tree: Tree, save: Any) -> None:
    save(tree.begin(), 10)
    save(tree.begin(), 20)
    before = lineage.numbers(tree.root)
    adopt.record_lineage(tree.root, "job-1", [FIRST], Calendar())
    adopt.record_lineage(tree.root, "job-2", [Predecessor("other", 9, None)], Calendar())
    assert lineage.numbers(tree.root) == before
    assert adopt.taken_over_by(tree.root, "attempt-1").step == 10  # type: ignore[union-attr]
    assert adopt.taken_over_by(tree.root, "attempt-9") is None


def test_a_manifest_of_nobody_that_is_known_is_refused(
    tree: Tree, elsewhere: Elsewhere, save: Any
) -> None:
    save(elsewhere.tree.begin("stranger"), 10)
    save(tree.begin(), 20)
    with pytest.raises(CheckpointError, match="chain"):
        elsewhere.bring(tree.root, 10)
    assert tree.kinds() == {"step-000020": "valid"}


def test_bytes_that_cannot_be_had_leave_nothing(
    tree: Tree, elsewhere: Elsewhere, save: Any
) -> None:
    save(elsewhere.tree.begin(), 10)
    adopt.record_lineage(tree.root, "job-1", [FIRST], Calendar())

    def fail(part: Part, to: Path) -> None:
        raise ArtifactCorrupt

    def short(part: Part, to: Path) -> None:
        to.write_bytes(b"x")

    for fetch, error in ((fail, ArtifactCorrupt), (short, CheckpointError)):
        with pytest.raises(error):
            adopt.adopt(tree.root, elsewhere.data(10), "me", fetch)
    assert tree.kinds() == {}


def test_a_set_aside_copy_is_noted_here_once(tree: Tree, save: Any) -> None:
    save(tree.begin(), 10, 20)
    found = load_manifest(tree.root, 20)
    assert isinstance(found, Manifest)
    aside = [
        TakenOver(step=20, manifest_id=found.manifest_id),
        TakenOver(step=10, manifest_id="another"),
        TakenOver(step=99, manifest_id="gone"),
    ]
    adopt.set_aside(tree.root, aside, "attempt-7", "was set aside elsewhere")
    assert tree.kinds() == {"step-000020": "set_aside", "step-000010": "valid"}
    [(name, note)] = notes.set_aside_by(tree.root, "attempt-7", ())
    assert (note.step, note.manifest_id) == (20, found.manifest_id)
    assert notes.set_aside_by(tree.root, "attempt-7", {name}) == []
    assert notes.set_aside_by(tree.root, "attempt-0", ()) == []
    assert (tree.root / REJECTED / name).is_file()
    assert adopt.newest_of(tree.root, "attempt-0").step == 10  # type: ignore[union-attr]


@pytest.mark.parametrize("stride", [4, pytest.param(1, marks=pytest.mark.bench_stress)])
def test_a_kill_at_any_call_leaves_a_tree_that_can_be_brought_up_again(
    tmp_path: Path,
    elsewhere: Elsewhere,
    save: Any,
    killed_at_call: Callable[..., str | None],
    stride: int,
) -> None:
    save(elsewhere.tree.begin(), 10)
    number, called = 1 - stride, "begin"
    while called:
        number += stride
        tree = Tree(tmp_path / f"ckpt-{number}")
        tree.root.mkdir()
        bring = partial(elsewhere.bring, tree.root, 10, FIRST)
        called = killed_at_call(number, bring) or ""
        bring()
        assert resumed(tree, 1) == 10, called
    assert number > 12
