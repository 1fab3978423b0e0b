"""Failures on purpose: where they strike, and what is counted of what they left."""

import json
import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import coordinators, faults
from benchmarks.comparators import bare
from benchmarks.faults import Trial
from benchmarks.scenario import PAYLOADS
from benchmarks.scenarios import crash_storm
from benchmarks.scenarios.crash_storm import Storm
from chaos.workloads.fan_out import EVERY
from flashruntime.attempt import Attempt, Settings
from flashruntime.checkpoint import Claim, Kind, inspect


@given(st.integers(0, 2**31), st.integers(1, 30), st.integers(1, 30))
def test_more_strikes_shift_no_other(seed: int, few: int, more: int) -> None:
    """The same seed gives every arm the same kills, within their bounds."""
    found = faults.strikes(seed, few + more, (2, 6), 3)
    assert found[:few] == faults.strikes(seed, few, (2, 6), 3)
    assert all(2 <= each.step <= 6 and 0 <= each.delay_s <= 0.003 for each in found)


def test_every_armed_trial_crashes_between_two_saves() -> None:
    armed = [each for each in crash_storm.armed(16) if each["crash"] != "none"]
    assert [each["trial"] for each in armed] == list(range(0, 16, 2))
    assert all(int(str(each["at"])) % EVERY for each in armed)
    assert all(each["crash"] == "none" for each in crash_storm.unarmed(16))


def test_a_bit_of_the_newest_checkpoint_is_flipped(tmp_path: Path) -> None:
    claim = Claim(attempt_id="a", job_id="j", epoch=0)
    attempt = Attempt(Settings(ckpt_dir=tmp_path / "ckpt", output_dir=tmp_path, claim=claim))
    attempt.resume()
    for step in (1, 2):
        attempt.save(step, {"state": os.urandom(1_000)})
    assert sorted(faults.committed(tmp_path / "ckpt")) == [1, 2]
    assert faults.corrupt_newest(tmp_path / "ckpt", seed=3) == 2
    kinds = {each.step: each.kind for each in inspect(tmp_path / "ckpt")}
    assert kinds[1] is Kind.VALID
    assert kinds[2] is not Kind.VALID


def test_goodput_counts_what_was_lost_and_its_bound_charges_what_was_kept() -> None:
    """Two trials of 100 steps; one crashed at 57 after a save at 50."""
    storm = Storm(wall_s=1.0, completed=2, crashed=1, useful=200, executed=207, kept=50)
    found = storm.measured()
    assert found["goodput"] == pytest.approx(200 / 207)
    assert found["lower"] == pytest.approx(200 / 250)
    assert found["redone"] == pytest.approx(7 / 200)


def test_a_storm_without_work_has_numbers() -> None:
    assert Storm(1.0, 0, 2, 0, 0, 0).measured()["goodput"] == 0.0


def test_a_trial_that_starts_again_loses_the_steps_before_its_crash(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    text = faults.TRIAL.read_text(encoding="utf-8")
    (source / faults.TRIAL.name).write_text(text, encoding="utf-8")
    crashing = {"trial": 0, "crash": "exit", "at": 23}
    place = tmp_path / "loop"
    place.mkdir()
    lost = crash_storm._from_nothing(place, source, crashing)
    assert lost == 23


@pytest.mark.parametrize("way", ["place", "rename"])
def test_a_naive_file_cut_short_does_not_load(tmp_path: Path, way: str) -> None:
    naive = [sys.executable, str(PAYLOADS / "naive.py")]
    said = bare.run([*naive, "pickle", way, "2", "1"], tmp_path)
    whole = (tmp_path / "latest.pt").stat().st_size
    assert said.split() == ["saving", "1", "saved", "1", str(whole), "saving", "2", "saved", "2",
                            str(whole)]  # fmt: skip
    (tmp_path / "short").write_bytes((tmp_path / "latest.pt").read_bytes()[: whole // 2])
    printed = bare.run([*naive, "load", "pickle", "latest.pt", "short"], tmp_path)
    loaded, failure = json.loads(printed)
    assert loaded == ""
    assert failure in {"EOFError", "UnpicklingError"}


def test_the_command_of_a_trial_says_how_it_ends() -> None:
    argv = Trial(steps=4, every=2, samples=1).argv(crash="exit", at=3)
    assert argv[argv.index("--crash-at") + 1] == "3"


def test_spans_lie_between_marks() -> None:
    assert coordinators.spans(("a", "b"), [1.0, 3.0, 7.0]) == {"a": 2.0, "b": 4.0}
