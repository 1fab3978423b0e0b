"""Checkpoints that verify and are of no use, and those that a run has loaded."""

import pytest

from flashruntime.attempt import Attempt, Settings
from flashruntime.checkpoint import Chain, Claim, inspect
from flashruntime.errors import Superseded


def attempt(tree, number, **more):
    claim = Claim(f"attempt-{number}", "job-1", number)
    return Attempt(Settings(tree.root, tree.root.parent, claim, keep=None, **more))


def test_c15_the_suspect_of_the_supervisor_is_set_aside_and_the_next_older_is_used(tree, save):
    save(tree.begin(), 1, 2)
    third = attempt(tree, 5, suspect_step=2)
    assert third.resume().step == 1
    assert [(r.step, r.kind) for r in third.rejections] == [(2, "set_aside")]
    assert attempt(tree, 6).resume().step == 1, "for good"
    third_chain = Chain.begin(tree.root, Claim("attempt-7", "job-1", 7))
    save(third_chain, 3)
    assert attempt(tree, 8, suspect_step=99).resume().step == 3, "one that is gone is no matter"


def test_a_late_attempt_cannot_set_anything_aside(tree, save):
    save(tree.begin(), 1, 2)
    attempt(tree, 5).resume()
    with pytest.raises(Superseded):
        attempt(tree, 4, suspect_step=2).resume()
    assert tree.kinds() == {"step-000002": "valid", "step-000001": "valid"}


def test_what_a_run_has_loaded_is_restore_verified_and_the_manifest_stays(tree, save):
    save(tree.begin(), 1, 2)
    before = (tree.step(2) / "manifest.json").read_bytes()
    assert [r.validation for r in inspect(tree.root)] == ["hash_verified", "hash_verified"]
    second = attempt(tree, 1)
    second.accept(second.find())
    assert [r.validation for r in inspect(tree.root)] == ["restore_verified", "hash_verified"]
    assert "a run has loaded it (restore_verified)" in inspect(tree.root)[0].reason
    assert (tree.step(2) / "manifest.json").read_bytes() == before


def test_notes_go_with_the_checkpoints_that_they_are_about(tree, save):
    save(tree.begin(), 1)
    second = attempt(tree, 1)
    second.accept(second.find())
    save(Chain.begin(tree.root, Claim("attempt-2", "job-1", 2), keep=1), 2)
    assert list(tree.kinds()) == ["step-000002"]
    assert list((tree.root / ".restored").iterdir()) == []
