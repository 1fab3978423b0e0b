"""Resuming, setting aside, retention, and the report of a tree."""

import errno
import os
import sys
from pathlib import Path

import pytest

from flashruntime.checkpoint import Snapshot, files, inspect, split, store
from flashruntime.errors import CheckpointError, InvalidInput, NotFound
from flashruntime.protocol.checkpoints import MAX_PART_BYTES
from flashruntime.protocol.failures import EndedBy, Evidence, FailureClass
from flashruntime.recovery import classify


def test_a_resume_whose_newest_checkpoint_is_good_reads_one_checkpoint(tree, save, monkeypatch):
    save(tree.begin(), 1, 2, 3)
    read = []
    original = store.load
    monkeypatch.setattr(
        store, "load", lambda root, step, admits: read.append(step) or original(root, step, admits)
    )
    assert tree.begin().resume().step == 3
    assert read == [3]


def test_c12_saving_and_polling_read_no_part(tree, save):
    """What was saved once is never read again but to resume from it: no polling re-hashes."""
    chain, opened, watching = tree.begin(keep=3), [], [True]

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        if watching and event == "open" and str(arguments[0]).endswith(".bin"):
            reads = int(arguments[2]) & os.O_ACCMODE == os.O_RDONLY
            opened.extend([arguments[0]] if reads else [])

    sys.addaudithook(watch)
    save(chain, *range(1, 7))
    for _ in range(100):
        assert store.steps(tree.root)[0] == 6
    assert opened == []
    assert tree.begin().resume().step == 6
    assert {Path(path).name for path in opened} == {"model.bin", "optimizer.bin"}
    watching.clear()


def test_the_bytes_handed_out_are_those_that_were_verified(tree, save, content):
    save(tree.begin(), 1)
    successor = tree.begin()
    (tree.step(1) / "model.bin").write_bytes(b"x" * 3000)
    assert successor.resume().parts == content(1)


def test_a_checkpoint_that_was_set_aside_is_skipped_by_every_later_attempt(tree, save, content):
    save(tree.begin(), 1, 2)
    manifest = (tree.step(2) / "manifest.json").read_bytes()
    second = tree.begin()
    second.set_aside(second.resume().step, "does not load")
    assert second.resume().step == 1
    third = tree.begin()
    assert third.resume().step == 1
    assert [(r.step, r.kind) for r in third.rejections] == [(2, "set_aside")]
    assert (tree.step(2) / "manifest.json").read_bytes() == manifest
    save(third, 2)
    assert tree.begin().resume().step == 2, "a new save of the step counts again"


def test_a_file_of_another_container_with_our_process_id_hinders_no_setting_aside(tree, save):
    """Process ids repeat on a shared volume; numbers of attempts do not."""
    save(tree.begin(), 1)
    second = tree.begin()
    manifest = second.resume().manifest
    note = store.sidecar(tree.root, manifest)
    foreign = note.with_name(f".{note.name}.{os.getpid()}.tmp")
    foreign.mkdir(parents=True)
    (foreign / "x").touch()
    second.set_aside(1, "does not load")
    assert note.exists()
    assert foreign.exists()


def test_c14_a_full_disk_leaves_the_old_checkpoint_and_a_failure_of_its_own_kind(
    tree, save, content, monkeypatch
):
    chain = tree.begin()
    save(chain, 1)

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as poor:
        poor.setattr(files, "write_all", full)
        with pytest.raises(CheckpointError) as caught:
            save(chain, 2)
    evidence = Evidence(
        ended_by=EndedBy.EXIT, exit_code=1, error_type="CheckpointError", message=str(caught.value)
    )
    assert classify(evidence)[0] is FailureClass.RESOURCE_EXHAUSTED
    assert tree.begin().resume().parts == content(1)


def test_nothing_to_resume_from_is_none(tree):
    assert tree.begin().resume() is None


def test_where_nothing_is_left_to_resume_from_the_reasons_are_told(tree, save):
    save(tree.begin(), 1)
    os.truncate(tree.step(1) / "model.bin", 1)
    successor = tree.begin()
    assert successor.resume() is None
    assert [(r.step, r.kind) for r in successor.rejections] == [(1, "corrupt")]


def test_a_damaged_newest_and_second_newest_fall_back_to_the_third(tree, save):
    save(tree.begin(), 1, 2, 3)
    for step in (2, 3):
        os.truncate(tree.step(step) / "optimizer.bin", 1)
    successor = tree.begin()
    assert successor.resume().step == 1
    assert [r.step for r in successor.rejections] == [3, 2]


def test_after_a_fallback_retention_counts_from_the_step_that_was_saved(tree, save):
    save(tree.begin(), 10, 20, 30, 40)
    for step in (20, 30, 40):
        os.truncate(tree.step(step) / "model.bin", 1)
    head = tree.begin(keep=2)
    assert head.resume().step == 10
    save(head, 15)
    assert tree.begin().resume().step == 15
    assert tree.kinds()["step-000010"] == "valid"


def test_a_step_that_vanishes_while_it_is_read_is_looked_for_again(tree, save, monkeypatch):
    save(tree.begin(), 1, 2)
    original = store.load

    def racing(root, step, admits):
        if step == 2 and tree.step(2).is_dir():
            tree.step(2).rename(tree.root / "pruned")
        return original(root, step, admits)

    monkeypatch.setattr(store, "load", racing)
    successor = tree.begin()
    assert successor.resume().step == 1
    assert successor.rejections == []


@pytest.mark.parametrize("count", [1, 2_000])
def test_a_checkpoint_of_many_parts_comes_back_part_by_part(tree, count):
    """More parts than a process may have files open."""
    parts = {f"part-{number:05d}": b"%d" % number * 9 for number in range(count)}
    tree.begin().save(Snapshot(7, parts))
    assert tree.begin().resume().parts == parts


@pytest.mark.bench_stress
def test_ten_thousand_parts_and_two_gigabytes_come_back(tree):
    parts = {f"part-{number:05d}": b"%d" % number for number in range(10_000)}
    chain = tree.begin()
    chain.save(Snapshot(1, parts))
    assert tree.begin().resume().parts == parts
    large = split("state", bytearray(2 * 1024**3 + 1))
    tree.attempts[-1].save(Snapshot(2, large))
    found = tree.begin().resume()
    assert [len(part) for part in found.parts.values()] == [len(part) for part in large.values()]


def test_split_cuts_without_copying_and_joins_to_the_same_bytes():
    data = bytes(MAX_PART_BYTES) + b"tail"
    parts = split("state", data)
    assert list(parts) == ["state-00000", "state-00001"]
    assert b"".join(parts.values()) == data


def test_a_part_that_is_too_large_is_refused_with_the_remedy(tree):
    with pytest.raises(InvalidInput, match="split what is larger"):
        tree.begin().save(Snapshot(1, {"w": bytes(MAX_PART_BYTES + 1)}))


def test_the_report_lists_every_step_with_reason_and_part(tree, save):
    chain = tree.begin()
    save(chain, 1, 2, 3)
    os.truncate(tree.step(3) / "model.bin", 1)
    (tree.step(2) / "manifest.json").unlink()
    (tree.root / "step-9").mkdir()
    staged = tree.root / ".staging" / "attempt-0" / "step-000004"
    staged.mkdir(parents=True)
    (staged / "model.bin").write_bytes(b"half")
    reports = inspect(tree.root)
    assert [(r.path, r.kind, r.part) for r in reports] == [
        ("step-000003", "corrupt", "model.bin"),
        ("step-000002", "torn", "manifest.json"),
        ("step-000001", "valid", None),
        ("step-9", "foreign", None),
        (".staging/attempt-0/step-000004", "torn", None),
    ]
    assert "1 files staged" in reports[-1].reason
    assert reports[2].size_bytes == 3002


def test_the_report_of_what_is_no_directory_is_not_found(tmp_path):
    with pytest.raises(NotFound, match="name a checkpoint tree"):
        inspect(tmp_path / "nothing")
