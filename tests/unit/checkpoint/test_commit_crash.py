"""A save or a beginning that is killed at any of its system calls harms nothing."""

from collections import Counter
from itertools import count

import pytest

from flashruntime.checkpoint import Snapshot

pytestmark = pytest.mark.integration


def committed_and_next(tree, content, step):
    """Whatever the kill left is a whole checkpoint, and the next attempt works."""
    successor = tree.begin()
    found = successor.resume()
    assert found.parts == content(found.step)
    successor.save(Snapshot(step, content(step)))
    assert tree.newest_of_all().parts == content(step)
    assert set(tree.kinds().values()) <= {"valid"}
    return found.step


def test_a_save_killed_before_any_call_leaves_the_earlier_or_the_new_checkpoint(
    tmp_path, tree, save, content, killed_at_call
):
    calls, resumed = Counter(), Counter()
    for number in count(1):
        tree.root, tree.attempts = tmp_path / f"tree-{number}", []
        chain = tree.begin()
        save(chain, 1)
        call = killed_at_call(number, lambda chain=chain: chain.save(Snapshot(2, content(2))))
        if call is None:
            break
        calls[call] += 1
        resumed[committed_and_next(tree, content, 2)] += 1
    assert calls["fsync"] == 5, "two parts, the manifest, the staged directory, the tree"
    assert calls["rename"] == 1
    assert resumed[1] > 10
    assert resumed[2] >= 1


def test_049_a_save_onto_a_torn_step_survives_a_kill_at_any_call(
    tmp_path, tree, save, content, killed_at_call
):
    for number in count(1):
        tree.root, tree.attempts = tmp_path / f"tree-{number}", []
        chain = tree.begin()
        save(chain, 1)
        tree.step(2).mkdir()
        (tree.step(2) / "model.bin").write_bytes(b"half")
        call = killed_at_call(number, lambda chain=chain: chain.save(Snapshot(2, content(2))))
        if call is None:
            break
        committed_and_next(tree, content, 2)


def test_retention_killed_at_any_call_removes_only_what_is_surplus(
    tmp_path, tree, save, content, killed_at_call
):
    for number in count(1):
        tree.root, tree.attempts = tmp_path / f"tree-{number}", []
        chain = tree.begin(keep=2)
        save(chain, 1, 2)
        call = killed_at_call(number, lambda chain=chain: chain.save(Snapshot(3, content(3))))
        if call is None:
            assert list(tree.kinds()) == ["step-000003", "step-000002"]
            break
        kept = [step for step in (2, 3) if tree.step(step).is_dir()]
        assert 2 in kept
        assert committed_and_next(tree, content, 3) == max(kept)


def test_a_beginning_killed_at_any_call_neither_blocks_nor_misleads_the_next_attempt(
    tmp_path, tree, save, content, killed_at_call
):
    for number in count(1):
        tree.root, tree.attempts = tmp_path / f"tree-{number}", []
        save(tree.begin(), 1, 2)
        call = killed_at_call(number, tree.begin)
        if call is None:
            break
        tree.attempts.append(tree.attempts[0])
        assert committed_and_next(tree, content, 3) == 2
