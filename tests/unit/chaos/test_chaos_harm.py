"""Damage and closed volumes as faults, on a machine in memory."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chaos.controller import Controller, Outcome, Run
from chaos.faults import (
    fill_disk,
    flip_bits,
    foreign_file,
    no_permission,
    overwrite,
    read_only,
    zero,
)
from chaos.harm import artifacts
from chaos.history import History
from chaos.model import Action, JobRequest, JsonMap, Trigger
from chaos.ports import Fault, Stored
from chaos.schedule import make_plan
from chaos.testing import FakeDisks, FakeMachine, FakeSystem

SAVED = Trigger(checkpoints_at_least=3)
ENDED = Trigger(event="JOB_SUCCEEDED")
JOBS = {"reference": JobRequest("reference", ("true",)), "main": JobRequest("main", ("true",))}


class Yard:
    """Runs one fault on a machine and reads what came of it."""

    def __init__(self, folder: Path, experiment: Any) -> None:
        self.folder = folder
        self.machine = FakeMachine()
        self._experiment = experiment

    def run(
        self, fault: Fault, target: str, trigger: Trigger, params: JsonMap, mib: int = 64
    ) -> JsonMap:
        action = Action("f", fault.kind, target, trigger, 20.0, params)
        plan = make_plan(self._experiment(action), 1, 3, JOBS, images={})
        plan = replace(plan, limits_mib={"checkpoints": mib} if mib else {})
        run = Run("run-1", self.folder, plan, JOBS, lambda: False, poll_s=0.001, steady_s=0.2)
        said: list[str] = []
        outcome: Outcome = Controller(
            self.machine, {fault.kind: fault}, run, said.append
        ).carry_out()
        assert outcome.reason is None
        (receipt,) = self.history.of("fault_receipt")
        return receipt

    @property
    def history(self) -> History:
        return History.load(self.folder / "history.jsonl")

    @property
    def disks(self) -> FakeDisks:
        return self.machine.disks["run-1"]


@pytest.fixture
def yard(tmp_path: Path, experiment: Any, monkeypatch: pytest.MonkeyPatch) -> Yard:
    monkeypatch.setattr("chaos.testing.system.LAST_STEP", 120)
    return Yard(tmp_path, experiment)


@pytest.mark.parametrize("depth", [1, 2])
def test_damage_to_the_newest_checkpoints_names_each_and_comes_before_the_next_claim(
    yard: Yard, depth: int
) -> None:
    receipt = yard.run(flip_bits.FAULT, "holder of main", SAVED, {"depth": depth, "choice": 1})
    evidence: Any = receipt["evidence"]
    assert receipt["landed"] == "landed"
    assert len(evidence["corrupted"]) == depth
    assert evidence["step"] == evidence["corrupted"][0]["step"]
    assert evidence["at_ns"] < evidence["next_claim_ns"]
    assert receipt["lost_lease_id"] == evidence["lease_id"]


def test_a_foreign_file_names_no_checkpoint_as_corrupted(yard: Yard) -> None:
    receipt = yard.run(foreign_file.FAULT, "holder of main", SAVED, {})
    evidence: Any = receipt["evidence"]
    assert (receipt["landed"], evidence["corrupted"], evidence["step"]) == ("landed", [], None)


def test_without_enough_checkpoints_nobody_is_killed_and_the_holder_goes_on(yard: Yard) -> None:
    receipt = yard.run(zero.FAULT, "holder of main", Trigger(step_at_least=1), {"depth": 99})
    evidence: Any = receipt["evidence"]
    assert (receipt["landed"], receipt["lost_lease_id"]) == ("missed", None)
    assert "only" in evidence["reason"]
    assert "exit_code" not in evidence
    assert yard.history.final("main")["job"]["state"] == "SUCCEEDED"  # type: ignore[index,call-overload]


@pytest.mark.parametrize("found_by", ["read", "scrub"])
def test_a_rotten_artifact_is_told_by_whoever_finds_it_and_whole_after_the_undo(
    yard: Yard, found_by: str
) -> None:
    receipt = yard.run(zero.FAULT, "artifacts of main", ENDED, {"found_by": found_by})
    evidence: Any = receipt["evidence"]
    assert receipt["landed"] == "landed"
    assert evidence["told"] == [file["sha256"] for file in evidence["rotted"]]
    assert evidence["given_out"] == ([None] if found_by == "read" else [])
    artifact: Any = yard.history.final("main")["artifacts"]
    assert artifact[0]["bytes_sha256"] == artifact[0]["sha256"]
    assert {undo.action for undo in yard.machine.undone} >= {"restore_artifacts"}


def test_an_artifact_that_is_as_before_is_missed(yard: Yard, monkeypatch: Any) -> None:
    hurt = FakeDisks.hurt_artifact

    def untouched(*words: Any) -> Any:
        found = hurt(*words)
        blobs = tuple((d, replace(f, after_sha256=f.before_sha256)) for d, f in found.blobs)
        return replace(found, blobs=blobs)

    monkeypatch.setattr(FakeDisks, "hurt_artifact", untouched)
    receipt = yard.run(zero.FAULT, "artifacts of main", ENDED, {"found_by": "read"})
    assert receipt["landed"] == "missed"


def test_damage_that_nobody_tells_of_still_landed(yard: Yard, monkeypatch: Any) -> None:
    """Whether it was found is for a judge to say."""
    monkeypatch.setattr(artifacts, "FIND_S", 0.05)
    monkeypatch.setattr("chaos.testing.FakeSystem.fetch", lambda *_: "f" * 64)
    receipt = yard.run(zero.FAULT, "artifacts of main", ENDED, {"found_by": "read"})
    evidence: Any = receipt["evidence"]
    assert (receipt["landed"], evidence["told"]) == ("landed", [])
    assert evidence["given_out"] == ["f" * 64]


LIMITED = [(fill_disk.FAULT, "ENOSPC"), (read_only.FAULT, "EROFS")]
CLOSINGS = [*LIMITED, (no_permission.FAULT, "EACCES")]


@pytest.mark.parametrize(("fault", "errno"), CLOSINGS)
def test_a_closed_volume_lands_by_a_write_that_fails_and_is_open_afterwards(
    yard: Yard, fault: Fault, errno: str
) -> None:
    receipt = yard.run(fault, "task of main", SAVED, {"volume": "artifacts", "hold_ms": 1})
    evidence: Any = receipt["evidence"]
    assert receipt["landed"] == "landed"
    seen = [evidence[name]["errno"] for name in ("before", "first", "last", "after")]
    assert seen == [None, errno, errno, None]
    assert evidence["canary_during"][0]["status"] == 200
    assert yard.disks.full | yard.disks.read_only | yard.disks.forbidden == set()


@pytest.mark.parametrize("fault", [fault for fault, _ in LIMITED])
def test_a_volume_without_a_limit_is_not_touched_and_the_fault_is_missed(
    yard: Yard, fault: Fault
) -> None:
    params: JsonMap = {"volume": "checkpoints", "hold_ms": 1}
    receipt = yard.run(fault, "task of main", SAVED, params, mib=0)
    evidence: Any = receipt["evidence"]
    assert receipt["landed"] == "missed"
    assert "larger file system" in evidence["reason"]


def test_a_volume_that_others_keep_open_is_missed(yard: Yard, monkeypatch: Any) -> None:
    """A remount that the kernel refuses closes nothing, whatever was switched on."""
    monkeypatch.setattr(
        FakeDisks, "set_read_only", lambda self, volume, _: replace(self.probe(volume), tries=9)
    )
    receipt = yard.run(read_only.FAULT, "task of main", SAVED, {"volume": "ledger", "hold_ms": 1})
    assert receipt["landed"] == "missed"


def test_a_volume_that_stays_closed_is_inconclusive(yard: Yard, monkeypatch: Any) -> None:
    monkeypatch.setattr(FakeDisks, "undo", lambda *_: None)
    params: JsonMap = {"volume": "checkpoints", "hold_ms": 1}
    receipt = yard.run(fill_disk.FAULT, "task of main", SAVED, params)
    assert receipt["landed"] == "inconclusive"


def test_a_volume_is_closed_until_what_is_waited_for_has_happened(yard: Yard) -> None:
    params: JsonMap = {"volume": "checkpoints", "hold_ms": 60_000, "until": "TASK_COMMIT_ACCEPTED"}
    receipt = yard.run(fill_disk.FAULT, "task of main", SAVED, params)
    evidence: Any = receipt["evidence"]
    assert (receipt["landed"], evidence["until_seen"]) == ("landed", True)
    assert evidence["held_s"] < 60


def test_an_upload_over_an_accepted_output_lands_once_it_is_answered(yard: Yard) -> None:
    receipt = yard.run(overwrite.FAULT, "artifacts of main", ENDED, {"choice": 3})
    evidence: Any = receipt["evidence"]
    assert receipt["landed"] == "landed"
    assert evidence["before_sha256"] == evidence["accepted_sha256"]
    assert evidence["answer"]["status"] == 200


def test_an_upload_that_nobody_answers_has_missed(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeSystem, "store", lambda self, key, data: Stored(None, "no answer"))
    receipt = yard.run(overwrite.FAULT, "artifacts of main", ENDED, {})
    assert receipt["landed"] == "missed"


def test_where_no_output_was_accepted_there_is_nothing_to_overwrite(yard: Yard) -> None:
    receipt = yard.run(overwrite.FAULT, "artifacts of main", Trigger(step_at_least=1), {})
    evidence: Any = receipt["evidence"]
    assert receipt["landed"] == "missed"
    assert "no output was accepted yet" in evidence["reason"]
