"""The fence on a shared tree: one head, one chain, and zombies that change nothing."""

import os
import threading
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flashruntime.checkpoint import (
    Chain,
    Claim,
    Snapshot,
    commit,
    displace,
    lineage,
    retention,
)
from flashruntime.checkpoint.lineage import Admission, Entry, TakenOver
from flashruntime.checkpoint.manifest import decode, seal, step_name
from flashruntime.clock import SystemClock
from flashruntime.errors import CheckpointError, InvalidInput, Superseded


def write_as_zombie(tree, zombie, step, content, monkeypatch):
    """Let a superseded attempt finish a save whose last look at the lineage came before its end."""
    with monkeypatch.context() as patched:
        patched.setattr("flashruntime.checkpoint.lineage.Hold.check", lambda hold: None)
        zombie.save(Snapshot(step, content(step)))


def test_a_superseded_attempt_is_refused_and_changes_nothing(tree, save):
    zombie = tree.begin(keep=1)
    save(zombie, 10)
    tree.begin()
    before = tree.kinds()
    with pytest.raises(Superseded, match="attempt-0 was superseded"):
        save(zombie, 20)
    with pytest.raises(Superseded):
        zombie.set_aside(10, "no")
    assert tree.kinds() == before


def test_what_a_zombie_still_commits_is_ignored_and_gives_way(tree, save, content, monkeypatch):
    zombie = tree.begin()
    save(zombie, 10)
    head = tree.begin()
    write_as_zombie(tree, zombie, 20, content, monkeypatch)
    assert tree.kinds() == {"step-000020": "foreign", "step-000010": "valid"}
    save(head, 20)
    next_one = tree.begin()
    found = next_one.resume()
    assert (found.step, found.manifest.attempt_id) == (20, "attempt-1")


def test_what_a_zombie_commits_beyond_the_takeover_never_counts_later_either(
    tree, save, content, monkeypatch
):
    zombie = tree.begin()
    save(zombie, 10)
    save(tree.begin(), 15)
    write_as_zombie(tree, zombie, 30, content, monkeypatch)
    third = tree.begin()
    assert third.resume().step == 15
    assert [(r.step, r.kind) for r in third.rejections] == [(30, "foreign")]


def test_retention_never_touches_what_is_foreign(tree, save, content, monkeypatch):
    zombie = tree.begin()
    save(zombie, 10)
    head = tree.begin(keep=1)
    write_as_zombie(tree, zombie, 12, content, monkeypatch)
    save(head, 20)
    assert tree.kinds() == {"step-000020": "valid", "step-000012": "foreign"}


def test_a_zombie_that_moved_its_successors_checkpoint_puts_it_back(tree, save, monkeypatch):
    zombie = tree.begin()
    save(zombie, 10)
    original, looks = displace.Hold.check, []

    def late(hold):
        looks.append(hold)
        if len(looks) == 1:
            successor = tree.begin()
            save(successor, 20)
            return
        original(hold)

    hold = zombie._hold
    with monkeypatch.context() as patched:
        patched.setattr("flashruntime.checkpoint.lineage.Hold.check", late)
        with pytest.raises(Superseded):
            displace.quarantine(hold, step_name(20), "in the way")
    assert tree.kinds()["step-000020"] == "valid"
    assert list((tree.root / ".displaced").iterdir()) == []


def test_a_mover_that_died_in_between_is_undone_by_the_next_attempt(
    tmp_path, tree, save, killed_at_call
):
    undone = 0
    for number in count(1):
        tree.root, tree.attempts = tmp_path / f"tree-{number}", []
        head = tree.begin()
        save(head, 10, 20)
        if killed_at_call(number, lambda h=head: displace.discard(h._hold, step_name(20))) is None:
            break
        pending = list(tree.root.glob(".displaced/*.pending"))
        decided = list(tree.root.glob(".displaced/*.doomed"))
        undone += len(pending)
        assert tree.begin().resume().step == (10 if decided or not tree.step(20).exists() else 20)
        assert not pending or tree.step(20).is_dir()
        assert not any(path.exists() for path in decided), "a decided removal is finished"
    assert undone > 0


def test_a_move_that_was_undone_meanwhile_is_not_finished(tree, save):
    head = tree.begin()
    save(head, 10)
    pending = displace._take(head._hold, step_name(10))
    displace.put_back_pending(tree.root, lambda _: True)
    assert not displace._settle(pending, pending.with_suffix(".doomed"))
    assert tree.kinds() == {"step-000010": "valid"}


def test_a_later_epoch_takes_over_and_an_earlier_or_equal_one_is_refused(tree, save):
    Chain.begin(tree.root, Claim("b", "job-1", 3))
    for claim in (Claim("a", "job-1", 2), Claim("c", "job-1", 3)):
        with pytest.raises(Superseded, match="came too late"):
            Chain.begin(tree.root, claim)
    assert Chain.begin(tree.root, Claim("d", "job-1", 5)).entry.n == 2


def test_without_an_epoch_whoever_begins_comes_after(tree):
    Chain.begin(tree.root, Claim("a", "job-1", 7))
    assert Chain.begin(tree.root, Claim("b", "job-1")).entry.epoch == 8


def test_a_job_that_another_job_followed_is_over(tree):
    Chain.begin(tree.root, Claim("a", "job-1", 0))
    Chain.begin(tree.root, Claim("b", "job-2", 0))
    with pytest.raises(Superseded, match="was followed by job job-2"):
        Chain.begin(tree.root, Claim("c", "job-1", 9))


def test_the_same_attempt_continues_its_own_entry(tree, save):
    save(tree.begin(), 10)
    again = Chain.begin(tree.root, Claim("attempt-0", "job-1", 0))
    assert (again.entry.n, again.resume().step) == (1, 10)
    save(again, 20)
    assert tree.begin().resume().step == 20


def test_an_attempt_cannot_come_back_after_its_successor(tree):
    tree.begin()
    tree.begin()
    with pytest.raises(Superseded):
        Chain.begin(tree.root, Claim("attempt-0", "job-1", 0))


def test_of_many_beginners_at_once_each_gets_its_own_number_and_one_is_head(tree, save):
    save(tree.begin(), 10)
    chains: list[Chain] = []
    gate = threading.Barrier(8)

    def begin(number):
        gate.wait()
        chains.append(Chain.begin(tree.root, Claim(f"rival-{number}", "job-1")))

    threads = [threading.Thread(target=begin, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(chain.entry.n for chain in chains) == list(range(2, 10))
    assert {chain.entry.takes_over.step for chain in chains} == {10}
    heads = [chain for chain in chains if chain._hold.is_head()]
    assert [chain.entry.n for chain in heads] == [9]


def test_staged_data_of_superseded_attempts_is_removed_and_that_of_strangers_kept(tree, save):
    save(tree.begin(), 10)
    for name in ("attempt-0", "someone-else"):
        folder = tree.root / ".staging" / name / "step-000020"
        folder.mkdir(parents=True)
        (folder / "model.bin").write_bytes(b"half")
    tree.begin()
    assert [path.name for path in (tree.root / ".staging").iterdir()] == ["someone-else"]


def test_a_save_whose_staging_the_successor_removed_is_superseded(tree, content, monkeypatch):
    zombie = tree.begin()
    original = commit.files.create

    def create(folder, name):
        if name == "optimizer.bin" and len(tree.attempts) == 1:
            tree.begin()
        return original(folder, name)

    monkeypatch.setattr(commit.files, "create", create)
    with pytest.raises(Superseded):
        zombie.save(Snapshot(1, content(1)))
    assert tree.kinds() == {}


def test_a_tree_without_lineage_is_adopted(tree, save):
    save(tree.begin(), 10, 20)
    for path in (tree.root / ".lineage").iterdir():
        path.unlink()
    tree.attempts.clear()
    adopter = tree.begin("adopter")
    assert adopter.resume().step == 20
    os.truncate(tree.step(20) / "model.bin", 1)
    assert tree.begin("next").resume().step == 10


@pytest.mark.parametrize("damage", [b"", b"{}", b'{"n":2}'])
def test_a_damaged_entry_vouches_for_nothing_and_blocks_nobody(tree, save, damage):
    save(tree.begin(), 10)
    save(tree.begin(), 20)
    (tree.root / ".lineage" / "000002.json").write_bytes(damage)
    successor = tree.begin()
    assert (successor.entry.n, successor.resume().step) == (3, 10)
    save(successor, 30)
    with pytest.raises(Superseded):
        save(tree.attempts[1], 40)


def test_a_damaged_entry_does_not_hide_what_its_successor_took_over(tree, save):
    save(tree.begin(), 10)
    save(tree.begin(), 20)
    tree.begin()
    (tree.root / ".lineage" / "000002.json").write_bytes(b"")
    assert tree.begin().resume().step == 20


def test_a_removed_tree_is_a_checkpoint_error_not_a_new_beginning(tree, save):
    chain = tree.begin()
    tree.root.rename(tree.root.with_name("gone"))
    with pytest.raises(CheckpointError, match="removed or replaced"):
        save(chain, 1)
    assert not tree.root.exists()


@pytest.mark.parametrize("attempt_id", ["", "a/b", "..", ".a", "a" * 129, "a b", "\u00e9"])
def test_an_attempt_id_that_is_no_plain_name_is_refused(attempt_id):
    with pytest.raises(InvalidInput, match="attempt id"):
        Claim(attempt_id, "job-1")


MANIFEST = {
    "manifest_id": "m", "job_id": "j", "framework": "none", "world_size": 1,
    "compatible_world_sizes": [1], "parts": [{"key": "w", "sha256": "0" * 64, "size_bytes": 1}],
    "created": "2026-01-01T00:00:00Z", "checkpoint_duration_s": 0,
}  # fmt: skip


def written(attempt, step):
    fields = {
        **MANIFEST,
        "attempt_id": f"a{attempt}",
        "step": step,
        "manifest_id": f"{attempt}-{step}",
    }
    return decode(seal(fields))


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 9)), max_size=7))
def test_only_what_was_written_before_each_takeover_counts(history):
    """A model of the fence: attempts run one after another, each may write late as a zombie."""
    entries, legitimate, late = [], {}, []
    for number, (progress, lag) in enumerate(history):
        start = max(legitimate, default=None)
        taken = None if start is None else TakenOver(step=start, manifest_id=legitimate[start])
        entries.append(
            Entry(n=number + 1, attempt_id=f"a{number}", job_id="j", epoch=number,
                  takes_over=taken, created="2026-01-01T00:00:00Z")
        )  # fmt: skip
        first = -1 if start is None else start
        for step in range(first + 1, first + 1 + progress):
            legitimate[step] = f"{number}-{step}"
        late.append(written(number, first + 1 + progress + lag))
    admits = Admission(entries)
    for step, manifest_id in legitimate.items():
        assert admits(written(int(manifest_id.split("-")[0]), step))
    for manifest in late[:-1]:
        assert not admits(manifest)


class Story:
    """Random interleavings of attempts on one tree, checked against what must be resumable."""

    def __init__(self, root):
        self.root, self.chains, self.newest, self.number = root, [], None, 0

    def begin(self):
        chain = Chain.begin(self.root, Claim(f"s{self.number}", "job-1", self.number), keep=2)
        self.number += 1
        found = chain.resume()
        assert (found.step if found else None) == self.newest
        self.chains.append(chain)

    def save(self, which, step):
        chain = self.chains[which % len(self.chains)]
        if chain is not self.chains[-1]:
            with pytest.raises(Superseded):
                chain.save(Snapshot(step, {"w": b"z%d" % step}))
            return
        step += 0 if self.newest is None else self.newest
        chain.save(Snapshot(step, {"w": b"w%d" % step}))
        self.newest = step


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.none() | st.tuples(st.integers(0, 5), st.integers(1, 3)), max_size=12))
def test_in_any_interleaving_each_attempt_resumes_from_the_heads_newest_save(
    tmp_path_factory, actions
):
    story = Story(tmp_path_factory.mktemp("story") / "ckpt")
    story.begin()
    for action in actions:
        if action is None:
            story.begin()
        else:
            story.save(*action)
    story.begin()


@pytest.fixture
def begun_late(tree, save, monkeypatch):
    """A successor that takes over step 2 while the head saves 3 and 4 and prunes 1 and 2."""
    head = tree.begin(keep=2)
    save(head, 1, 2)
    publish = lineage.publish

    def late(root, entry):
        monkeypatch.undo()
        save(head, 3, 4)
        return publish(root, entry)

    monkeypatch.setattr(lineage, "publish", late)
    return tree.begin()


def test_what_is_pruned_while_a_successor_begins_from_it_is_not_the_end_of_the_chain(
    tree, save, begun_late
):
    """The successor dies before its first save: its predecessor's last checkpoint is the newest."""
    assert begun_late.resume().step == 2
    assert tree.kinds() == {"step-000004": "valid", "step-000003": "valid"}
    third = tree.begin(keep=2)
    assert third.resume().step == 4
    save(third, 5)
    assert tree.begin().resume().step == 5


def test_a_successor_that_has_saved_is_not_passed_over_for_what_it_began_from(
    tree, save, begun_late
):
    save(begun_late, 3)
    assert tree.kinds()["step-000004"] == "foreign"
    assert tree.begin().resume().manifest.attempt_id == begun_late.entry.attempt_id


def test_a_zombie_in_the_middle_of_retention_removes_nothing_more(tree, save, content):
    zombie = tree.begin()
    save(zombie, 1, 2, 3)
    tree.begin()
    with pytest.raises(Superseded):
        retention.retain(zombie._hold, zombie._admits, 3, 1)
    assert list(tree.kinds().values()) == ["valid"] * 3


def test_a_valid_step_of_the_chain_in_place_wins(tree, save, content):
    first = tree.begin()
    save(first, 10)
    head = tree.begin()
    other = Snapshot(10, {"model.bin": b"other"})
    assert commit.commit(head._hold, head._admits, other, SystemClock()).attempt_id == "attempt-0"
    assert tree.begin().resume().parts == content(10)
