"""The controller: everything to disk first, and heal on every path."""

import errno
import os
import shutil
import signal
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest

from chaos import registry
from chaos.controller import End
from chaos.history import History, HistoryWriter
from chaos.journal import open_undos
from chaos.judge import invariants_of, judge
from chaos.model import CannotRun, Container, Landed, Unreachable, Verdict
from chaos.ports import Scene
from chaos.testing import FakeSystem


def judged(history: History) -> Verdict:
    return judge(history, registry.invariants(invariants_of(history))).verdict


def landed(history: History) -> list[str]:
    return [str(receipt["landed"]) for receipt in history.of("fault_receipt")]


def assert_healed(harness: Any) -> None:
    assert harness.machine.runs() == ()
    assert open_undos(harness.journal) == ()
    assert harness.history.one("audit")["containers"] == []


def test_a_run_whose_fault_lands_and_whose_system_recovers_is_valid(
    harness: Any, kill: Any, action: Any
) -> None:
    outcome = harness.run(kill(), action(5))
    assert outcome.end is End.COMPLETED
    assert landed(harness.history) == ["landed"]
    assert judged(harness.history) is Verdict.VALID
    assert_healed(harness)


def test_the_undo_is_fsynced_before_the_fault_fires(
    harness: Any, kill: Any, action: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    real = os.fsync

    def fsync(fd: int) -> None:
        real(fd)
        if Path(f"/proc/self/fd/{fd}").readlink().name == "journal.jsonl":
            order.append(harness.journal.read_text().splitlines()[-1])

    monkeypatch.setattr("chaos.journal.os.fsync", fsync)
    harness.run(kill(during=lambda scene: order.append("fire")), action(5))
    fired = order.index("fire")
    assert any("stack_down" in line for line in order[:fired])
    assert "start_container" in order[fired - 1]


def test_the_undo_of_the_stack_is_on_disk_before_the_stack_starts(
    harness: Any, kill: Any, action: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def up(self: Any) -> None:
        assert [undo.action for undo in open_undos(harness.journal)] == ["stack_down"]
        raise CannotRun("a port is taken")

    monkeypatch.setattr("chaos.testing.FakeSystem.up", up)
    outcome = harness.run(kill(), action(5))
    assert (outcome.end, outcome.reason) == (End.CANNOT_RUN, "a port is taken")
    assert_healed(harness)


def explode(scene: Scene) -> None:
    raise RuntimeError("the fault itself is broken")


def test_a_fault_that_raises_is_inconclusive_and_the_run_goes_on(
    harness: Any, kill: Any, action: Any
) -> None:
    outcome = harness.run(kill(during=explode), action(4, "a"), action(5, "b"))
    assert outcome.end is End.COMPLETED
    assert landed(harness.history) == ["inconclusive", "inconclusive"]
    assert judged(harness.history) is Verdict.UNKNOWN
    assert_healed(harness)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_in_the_middle_of_a_fault_heals_and_ends_interrupted(
    harness: Any, kill: Any, action: Any, number: signal.Signals
) -> None:
    before = signal.getsignal(number)
    outcome = harness.run(kill(during=lambda scene: signal.raise_signal(number)), action(5))
    assert outcome.end is End.INTERRUPTED
    assert signal.getsignal(number) is before
    assert_healed(harness)


def test_under_nohup_a_closed_terminal_does_not_end_the_run(
    harness: Any, kill: Any, action: Any
) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        fault = kill(during=lambda scene: signal.raise_signal(signal.SIGHUP))
        assert harness.run(fault, action(5)).end is End.COMPLETED
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_signal_while_healing_does_not_stop_the_healing(
    harness: Any, kill: Any, action: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def save_logs(self: Any, folder: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("chaos.testing.FakeSystem.save_logs", save_logs)
    outcome = harness.run(kill(), action(5))
    assert outcome.end is End.INTERRUPTED
    assert_healed(harness)


def test_an_error_of_the_harness_itself_heals_and_cannot_run(
    harness: Any, kill: Any, action: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def submit(self: Any, role: str, request: Any) -> str:
        raise ValueError("no such thing")

    monkeypatch.setattr("chaos.testing.FakeSystem.submit", submit)
    outcome = harness.run(kill(), action(5))
    assert outcome.end is End.CANNOT_RUN
    assert "no such thing" in str(outcome.reason)
    assert_healed(harness)


def test_a_failed_undo_does_not_stop_the_others_and_stays_open(
    harness: Any, kill: Any, action: Any
) -> None:
    harness.machine.failing = {"start_container"}
    harness.run(kill(), action(5))
    assert harness.machine.runs() == ()
    assert [undo.action for undo in open_undos(harness.journal)] == ["start_container"]
    assert judged(harness.history) is not Verdict.VALID


def test_a_trigger_that_never_comes_is_missed_without_waiting_for_the_deadline(
    harness: Any, kill: Any, action: Any
) -> None:
    fault = kill()
    harness.run(fault, action(10_000))
    (receipt,) = harness.history.of("fault_receipt")
    assert receipt["landed"] == "missed"
    assert fault.fired == []
    assert judged(harness.history) is Verdict.UNKNOWN


def test_a_trigger_that_does_not_come_by_its_deadline_is_missed(
    harness: Any, kill: Any, action: Any
) -> None:
    fault = kill()
    harness.run(fault, action(10, deadline_s=0.0))
    assert landed(harness.history) == ["missed"]
    assert fault.fired == []


def test_a_fault_that_reports_a_miss_makes_the_run_unknown(
    harness: Any, kill: Any, action: Any
) -> None:
    harness.run(kill(landed=Landed.MISSED), action(5))
    assert judged(harness.history) is Verdict.UNKNOWN


def test_an_unlabelled_target_is_refused_and_not_touched(
    harness: Any, kill: Any, action: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "chaos.testing.FakeSystem.of_node",
        lambda self, node: Container("id-x", node, None),
    )
    fault = kill()
    harness.run(fault, action(5))
    (receipt,) = harness.history.of("fault_receipt")
    assert receipt["landed"] == "missed"
    assert "not touched" in str(receipt["evidence"])
    assert fault.fired == []


def test_a_target_that_moves_on_after_its_undo_was_promised_is_not_touched(
    harness: Any, kill: Any, action: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The undo on disk names one worker; another one must not be hit without any."""
    real, names = FakeSystem.of_node, chain(["worker-1"], repeat("worker-2"))
    monkeypatch.setattr(FakeSystem, "of_node", lambda self, node: real(self, next(names)))
    fault = kill()
    harness.run(fault, action(5))
    (receipt,) = harness.history.of("fault_receipt")
    assert receipt["landed"] == "missed"
    assert "worker-2 is not worker-1; it is not touched" in str(receipt["evidence"])
    assert fault.fired == []
    assert_healed(harness)


def test_a_stack_that_never_becomes_steady_cannot_run(
    harness: Any, kill: Any, action: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chaos.testing.FakeSystem.unsteady", lambda self: ("worker-2 is missing",))
    outcome = harness.run(kill(), action(5))
    assert outcome.end is End.CANNOT_RUN
    assert "worker-2 is missing" in str(outcome.reason)
    assert_healed(harness)


def test_nothing_is_undone_before_the_system_recovered_by_itself(
    harness: Any, kill: Any, action: Any
) -> None:
    harness.run(kill(), action(5))
    (done_ns,) = [
        record.t_ns
        for record in harness.history.records
        if record.kind == "undo"
        and record.data["state"] == "done"
        and record.data["fault_id"] == "kill-1"
    ]
    claims = [event for event in harness.history.events() if event.type == "LEASE_CLAIMED"]
    assert claims[-1].mono_ns < done_ns


def test_a_kept_stack_stays_up_with_its_undo_open(harness: Any, kill: Any, action: Any) -> None:
    outcome = harness.run(kill(), action(5), keep=True)
    assert outcome.kept
    assert harness.machine.runs() == ("run-1",)
    assert [undo.action for undo in open_undos(harness.journal)] == ["stack_down"]


def test_the_system_giving_no_answer_for_a_while_is_no_failure_of_the_run(
    harness: Any, kill: Any, action: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = FakeSystem.events, []

    def events(self: Any, after: int) -> Any:
        calls.append(after)
        if len(calls) in range(3, 6):
            raise Unreachable("connection refused")
        return real(self, after)

    monkeypatch.setattr(FakeSystem, "events", events)
    outcome = harness.run(kill(), action(5))
    assert outcome.end is End.COMPLETED
    assert judged(harness.history) is Verdict.VALID
    assert [note["text"] for note in harness.history.of("note")] == [
        "no word on events",
        "word on events again",
    ]


def test_a_run_directory_that_is_removed_meanwhile_does_not_stop_the_healing(
    harness: Any, kill: Any, action: Any
) -> None:
    fault = kill(during=lambda scene: shutil.rmtree(harness.folder))
    harness.run(fault, action(5))
    assert harness.machine.runs() == ()
    assert [undo.action for undo in harness.machine.undone] == ["start_container", "stack_down"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_full_disk_does_not_stop_the_healing(
    harness: Any, kill: Any, action: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Any, kind: str, data: Any, source: str = "") -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    fault = kill(during=lambda scene: monkeypatch.setattr(HistoryWriter, "append", full))
    outcome = harness.run(fault, action(5))
    assert outcome.end is End.CANNOT_RUN
    assert "no space left on device" in str(outcome.reason)
    assert harness.machine.runs() == ()


@pytest.mark.parametrize("error", [BrokenPipeError(), SystemExit(1), RuntimeError("reentrant")])
def test_a_reader_that_went_away_does_not_stop_the_healing(
    harness: Any, kill: Any, action: Any, error: BaseException
) -> None:
    """Ctrl-C in `make chaos | tee log` ends tee too: every later word hits a closed pipe."""

    class Gone(list[str]):
        def append(self, text: str) -> None:
            if text == "removing the stack":
                raise error

    harness.said = Gone()
    harness.run(kill(), action(5))
    assert_healed(harness)
