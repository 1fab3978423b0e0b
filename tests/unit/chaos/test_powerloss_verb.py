"""`python -m chaos powerloss`: what it judges, what it says, how it ends."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from chaos.blackout import Choice, explore, understood
from chaos.cli import main
from chaos.model import CannotRun, Verdict
from chaos.testing.images import NEWER, OLDER, FakeImages
from chaos.testing.machine import FakeMachine

ALL = Choice(1, None, None)


def said(_text: str) -> None:
    pass


def test_a_save_that_syncs_is_valid_in_every_state_and_on_every_image() -> None:
    found = explore(FakeImages(), "checkpoint", ALL, said)
    assert found.verdict is Verdict.VALID
    assert found.known == len(found.states) == len(found.mounted) > 10
    assert found.lossy > 5
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
