"""The real job resumes bit for bit, wherever and however often it is killed."""

import json
import os
import random
import signal

import pytest

pytestmark = pytest.mark.torch

PROOFS = ("weights_sha256", "sample_chain", "samples_seen", "loss", "accuracy")


def proofs(folder):
    metrics = json.loads((folder / "metrics.json").read_text())
    return {name: metrics[name] for name in PROOFS}


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """Results of undisturbed runs, by arguments."""
    return {}


@pytest.mark.parametrize("seed", range(3))
def test_kills_at_random_steps_change_neither_weights_nor_order(
    tmp_path, digits, kill_on, seed, uninterrupted
):
    chance = random.Random(seed)
    every = chance.choice([1, 3, 7])
    arguments = ("--steps", 60, "--width", 96, "--print-every", 1)
    if not uninterrupted:
        assert digits(*arguments, "--every", 0, folder=tmp_path / "whole").exit_code == 0
        uninterrupted.update(proofs(tmp_path / "whole"))
    folder, kills = tmp_path / "killed", 0
    for step in sorted(chance.sample(range(2, 60), 4)):
        ended = digits(*arguments, "--every", every, folder=folder, kill_at=kill_on(step))
        kills += ended.exit_code == -signal.SIGKILL
    final = digits(*arguments, "--every", every, folder=folder)
    assert final.exit_code == 0, final.output
    assert kills == 4
    assert len(final.events("resumed")) == 1
    assert proofs(folder) == uninterrupted


def test_a_kill_while_parts_are_being_written_costs_only_that_checkpoint(tmp_path, digits):
    arguments = ("--steps", 24, "--every", 1, "--width", 768, "--print-every", 1)
    digits(*arguments[:2], "--every", 0, *arguments[4:], folder=tmp_path / "whole")
    folder = tmp_path / "killed"
    tree = folder / "flashruntime-ckpt"

    def in_window(line):
        step = json.loads(line).get("seq", 0) if '"loss"' in line else 0
        if step < 3:
            return None
        while not list(tree.glob(".staging/*/step-*/*.bin")):
            if any(int(path.name[5:]) >= step for path in tree.glob("step-*")):
                return None
            os.sched_yield()
        return signal.SIGKILL

    torn = None
    while torn is None:
        first = digits(*arguments, folder=folder, kill_at=in_window)
        assert first.exit_code == -signal.SIGKILL, "no save of the whole run was hit"
        torn = next(tree.glob(".staging/*/step-*"), None)
    assert not (tree / torn.name).exists()
    final = digits(*arguments, folder=folder)
    assert final.exit_code == 0, final.output
    assert proofs(folder) == proofs(tmp_path / "whole")
    assert final.events("resumed")[0]["step"] == int(torn.name[5:]) - 1


def test_a_notice_saves_at_the_next_step_and_exits_with_143(tmp_path, digits, kill_on):
    arguments = ("--steps", 40, "--width", 64, "--print-every", 1)
    digits(*arguments, "--every", 0, folder=tmp_path / "whole")
    folder = tmp_path / "noticed"
    first = digits(*arguments, "--every", 1000, folder=folder, kill_at=kill_on(11, signal.SIGTERM))
    assert first.exit_code == 143
    (stopped,) = first.events("stopped_on_notice")
    assert stopped["step"] >= 11
    second = digits(*arguments, "--every", 1000, folder=folder)
    assert second.events("resumed")[0]["step"] == stopped["step"]
    assert proofs(folder) == proofs(tmp_path / "whole")


def test_a_damaged_newest_checkpoint_is_reported_and_the_result_is_the_same(tmp_path, digits):
    arguments = ("--steps", 30, "--every", 10, "--width", 64)
    digits(*arguments, folder=tmp_path / "whole")
    folder = tmp_path / "damaged"

    def when_saved(line: str) -> int | None:
        return signal.SIGKILL if '"checkpoint_committed"' in line else None

    digits(*arguments, folder=folder, kill_at=when_saved)
    newest = max((folder / "flashruntime-ckpt").glob("step-*"))
    part = newest / "tensors-00000.bin"
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 1
    part.write_bytes(data)
    final = digits(*arguments, folder=folder)
    (rejected,) = final.events("checkpoint_rejected")
    assert (rejected["kind"], rejected["part"]) == ("corrupt", "tensors-00000.bin")
    assert proofs(folder) == proofs(tmp_path / "whole")


def test_a_finished_run_that_is_started_again_does_no_step(tmp_path, digits):
    arguments = ("--steps", 20, "--every", 10, "--width", 64)
    digits(*arguments, folder=tmp_path)
    before = proofs(tmp_path)
    digits(*arguments, folder=tmp_path)
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert metrics["executed_steps_this_attempt"] == 0
    assert metrics["resumed_from"] == 20
    assert proofs(tmp_path) == before


def test_021_another_network_is_told_apart_and_never_starts_anew(tmp_path, digits):
    digits("--steps", 10, "--every", 10, "--width", 64, folder=tmp_path)
    ended = digits("--steps", 20, "--every", 10, "--width", 65, folder=tmp_path)
    assert ended.exit_code == 1
    assert "step 10 does not match this source: model:" in ended.output
    assert "0.weight" in ended.output


def test_the_step_file_tells_the_worker_how_far_the_run_is(tmp_path, digits, monkeypatch):
    monkeypatch.setenv("FLASHML_STEP_FILE", str(tmp_path / "step.json"))
    monkeypatch.setenv("FLASHML_ATTEMPT_ID", "lease-1")
    monkeypatch.setenv("FLASHML_RESTART_COUNT", "0")
    monkeypatch.setenv("FLASHML_OUTPUT_DIR", str(tmp_path / "out"))
    monkeypatch.setenv("FLASHML_CKPT_DIR", str(tmp_path / "ckpt"))
    (tmp_path / "out").mkdir()
    assert digits("--steps", 25, "--every", 10, "--width", 64).exit_code == 0
    state = json.loads((tmp_path / "step.json").read_text())
    assert state == {"step": 25, "resumed_from": None, "checkpoint_step": 20}
    assert (tmp_path / "out" / "metrics.json").exists()
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [event["step"] for event in events] == [10, 20]
    assert len(list((tmp_path / "ckpt" / ".lineage").iterdir())) == 1
