"""`python -m chaos powerloss`: what it judges, what it says, how it ends."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chaos.blackout import Choice, explore, understood
from chaos.cli import main
from chaos.experiments import power_loss as power_loss_experiment
from chaos.faults.power_loss import FAULT
from chaos.history import History, Record
from chaos.invariants import survives_power_loss
from chaos.model import Action, CannotRun, JsonMap, Landed, Receipt, Trigger, Verdict
from chaos.ports import RunSpec, World
from chaos.schedule import Draw
from chaos.testing.images import NEWER, OLDER, FakeImages
from chaos.testing.machine import FakeMachine

ALL = Choice(1, None, None)


def said(_text: str) -> None:
    pass


def test_a_save_that_syncs_is_valid_in_every_state_and_on_every_image() -> None:
    found = explore(FakeImages(), "checkpoint", ALL, said)
    assert found.verdict is Verdict.VALID
    assert found.known == len(found.states) > 10
    assert found.lossy == len(found.mounted) > 5
    assert all(len(str(state["image_sha256"])) == 64 for state in found.mounted)


def test_a_save_without_fsync_is_caught_with_what_was_lost() -> None:
    found = explore(FakeImages(synced=False), "checkpoint", ALL, said)
    assert found.verdict is Verdict.VIOLATED
    wrong = {str(state["violations"]) for state in found.bad}
    assert f"['{NEWER} had been answered and is torn']" in wrong
    assert f"['{NEWER} had been answered and is absent']" in wrong
    assert all(state["lost"] for state in found.bad)


def test_where_no_state_lost_anything_the_verdict_is_unknown() -> None:
    found = explore(FakeImages(), "checkpoint", Choice(1, 0, 0), said)
    assert found.verdict is Verdict.UNKNOWN


def test_a_trace_that_does_not_lead_to_what_lies_there_is_not_judged() -> None:
    recording = FakeImages().record("checkpoint")
    changed = replace(recording, after={**recording.after, f"{OLDER}/more": b"x"})
    with pytest.raises(CannotRun, match=f"{OLDER}/more"):
        understood(changed)


def test_the_verb_keeps_what_it_saw_and_ends_by_the_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = FakeMachine()
    asked = ["powerloss", "--what", "checkpoint", "--out", str(tmp_path)]
    assert main(asked, lambda: machine) == 0
    capsys.readouterr()
    assert main([*asked, "--planted", "no_fsync", "--json"], lambda: machine) == 1
    kept = [json.loads(path.read_text()) for path in tmp_path.glob("*/powerloss.json")]
    assert sorted(each["verdict"] for each in kept) == ["valid", "violated"]
    shown = capsys.readouterr()
    assert json.loads(shown.out)["recordings"][0]["states_lossy"] > 0
    assert "had been answered and is" in shown.err
    removed = [undo.run_id for undo in machine.undone if undo.action == "stack_down"]
    assert removed == machine.explored


class OnlyImages:
    """A scene in which a fault may note, and reach recorder and judges."""

    def __init__(self, action: Action, world: World) -> None:
        self.action = action
        self.world = world

    def note(self, text: str, data: JsonMap) -> None:
        pass


def receipts(planted: str | None) -> tuple[list[Receipt], tuple[Verdict, str]]:
    """The receipts of the experiment's faults on the twin, and what the invariant says of them."""
    world = FakeMachine().world(RunSpec("r", workers=2, planted=planted))
    found = []
    for action in power_loss_experiment.EXPERIMENT.faults(Draw(1)):
        scene: Any = OnlyImages(action, world)
        found.append(FAULT.receipt(scene, FAULT.fire(scene)))
    records = [received({"evidence": dict(each.evidence)}) for each in found]
    return found, survives_power_loss.INVARIANT.judge(History(records))


def received(data: JsonMap) -> Record:
    return Record(0, 0, "boot", "", "controller", "fault_receipt", data)


def test_the_receipt_of_the_fault_is_the_digest_of_an_image_and_what_is_lost_in_it() -> None:
    found, (verdict, detail) = receipts(None)
    assert {receipt.landed for receipt in found} == {Landed.LANDED}
    images: Any = found[0].evidence["power_lost"]
    assert any(image["lost"] and image["image_sha256"] for image in images)
    assert (verdict, "disk images mounted" in detail) == (Verdict.VALID, True)


def test_where_no_image_that_lost_something_was_mounted_the_fault_missed() -> None:
    world = FakeMachine().world(RunSpec("r", workers=2))
    params: JsonMap = {"what": "checkpoint", "limit": 1, "mounts": 0}
    scene: Any = OnlyImages(Action("f", "power_loss", "coordinator", Trigger(), 1.0, params), world)
    assert FAULT.receipt(scene, FAULT.fire(scene)).landed is Landed.MISSED


def test_a_build_without_fsync_violates_the_invariant_and_no_power_loss_leaves_it_unknown() -> None:
    _, (verdict, detail) = receipts("no_fsync")
    assert (verdict, "step-000020" in detail) == (Verdict.VIOLATED, True)
    assert survives_power_loss.INVARIANT.judge(History([]))[0] is Verdict.UNKNOWN
