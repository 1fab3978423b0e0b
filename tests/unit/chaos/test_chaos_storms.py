"""Many faults in one run: side by side, repeated, with victims that come back and jobs in turn."""

import signal
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chaos import collect
from chaos.controller import Controller, End, Run
from chaos.history import History, HistoryWriter, items, mapping
from chaos.load import Load
from chaos.model import (
    Action,
    Comeback,
    JobRequest,
    JobView,
    JsonMap,
    Landed,
    NoTarget,
    Observation,
    Receipt,
    TaskView,
    Trigger,
    Unreachable,
    UsageError,
)
from chaos.ports import Scene, WriteWindow
from chaos.schedule import Draw, Experiment, make_plan
from chaos.testing import FakeSystem


def receipts(history: History) -> list[str]:
    return [str(receipt["fault_id"]) for receipt in history.of("fault_receipt")]


def undone(history: History, state: str) -> list[str]:
    undos = [undo for undo in history.of("undo") if undo["state"] == state]
    return [str(undo["fault_id"]) for undo in undos if undo["fault_id"] is not None]


def moments(history: History, kind: str) -> list[int]:
    return [record.t_ns for record in history.records if record.kind == kind]


def test_a_fault_does_not_wait_for_one_that_stands_before_it(
    harness: Any, kill: Any, action: Any
) -> None:
    """The first of the schedule has the later trigger."""
    harness.run(kill(), action(20, "late"), action(5, "early"))
    assert receipts(harness.history) == ["early", "late"]


def test_faults_are_under_way_at_the_same_time(harness: Any, kill: Any, action: Any) -> None:
    meeting = threading.Barrier(2, timeout=10)
    fault = kill(during=lambda scene: meeting.wait())
    reference = replace(
        action(5, "b"), target="holder of reference", trigger=Trigger("reference", step_at_least=5)
    )
    harness.run(fault, action(5, "a"), reference)
    assert [r["landed"] for r in harness.history.of("fault_receipt")] == ["landed", "landed"]


def test_a_fault_that_names_another_waits_for_its_receipt(
    harness: Any, kill: Any, action: Any
) -> None:
    second = replace(action(0, "second"), trigger=Trigger(after="first"))
    harness.run(kill(), action(5, "first"), second)
    assert receipts(harness.history) == ["first", "second"]
    armed, receipt = (
        moments(harness.history, "fault_armed"),
        moments(harness.history, "fault_receipt"),
    )
    assert armed[1] > receipt[0]


def test_a_victim_comes_back_once_its_task_was_claimed_again(
    harness: Any, kill: Any, action: Any
) -> None:
    """So that a schedule may kill more often than there are workers."""
    kills = [
        replace(
            action(0, f"kill-{n}"),
            trigger=Trigger(step_at_least=5 + 25 * n, after=f"kill-{n - 1}" if n else None),
            comeback=Comeback.RECLAIMED,
        )
        for n in range(6)
    ]
    assert harness.run(kill(), *kills).end is End.COMPLETED
    history = harness.history
    assert {receipt["landed"] for receipt in history.of("fault_receipt")} == {"landed"}
    assert undone(history, "early") == [f"kill-{n}" for n in range(6)]
    claims = [e.mono_ns for e in history.events() if e.type == "LEASE_CLAIMED"]
    early = [r.t_ns for r in history.records if r.data.get("state") == "early"]
    assert all(any(done < back for done in claims[2:]) for back in early)


def test_a_victim_that_comes_back_at_once_waits_for_no_claim(
    harness: Any, kill: Any, action: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Observation, "moved_on", lambda seen, lease_id: 1 / 0)
    harness.run(kill(), replace(action(5), comeback=Comeback.AT_ONCE))
    assert undone(harness.history, "early") == ["kill-1"]


def test_a_comeback_that_fails_is_noted_and_healed_at_the_end(
    harness: Any, kill: Any, action: Any
) -> None:
    harness.machine.failing = {"start_container"}
    harness.run(kill(), replace(action(5), comeback=Comeback.AT_ONCE))
    notes = [str(note["text"]) for note in harness.history.of("note")]
    assert "its target did not come back" in notes
    assert receipts(harness.history) == ["kill-1"]


def test_after_a_signal_no_fault_of_another_thread_touches_anything(
    harness: Any, kill: Any, action: Any
) -> None:
    """One fault is interrupted while another waits inside its fire: that one never kills."""
    inside, killed = threading.Event(), []

    def during(scene: Scene) -> None:
        if scene.action.fault_id == "waits":
            inside.set()
            scene.wait(lambda seen: False, 30.0)
            killed.append(scene.action.fault_id)
        else:
            inside.wait(10)
            signal.raise_signal(signal.SIGINT)

    waits = replace(
        action(5, "waits"),
        target="holder of reference",
        trigger=Trigger("reference", step_at_least=5),
    )
    outcome = harness.run(kill(during=during), waits, action(5, "signals"))
    assert outcome.end is End.INTERRUPTED
    assert killed == []
    assert harness.machine.runs() == ()


def run_jobs(harness: Any, jobs: dict[str, JobRequest], *schedule: Action) -> History:
    experiment = Experiment("e", "", "w", lambda draw: schedule, (), drain_s=20.0)
    plan = make_plan(experiment, 1, 3, jobs, images={})
    run = Run("run-1", harness.folder, plan, jobs, lambda: False, poll_s=0.001, steady_s=0.2)
    Controller(harness.machine, {}, run, harness.said.append).carry_out()
    return harness.history


def test_a_job_that_waits_for_another_is_submitted_when_that_one_has_ended(harness: Any) -> None:
    one = JobRequest("one", ("true",))
    two = replace(one, starts_after="first")
    history = run_jobs(harness, {"first": one, "second": two, "third": replace(two, like="first")})
    jobs = history.role_of()
    ended = {
        jobs[str(event.job_id)]: event.mono_ns
        for event in history.events()
        if event.type == "JOB_SUCCEEDED"
    }
    submitted = dict(zip(jobs.values(), moments(history, "job_submitted"), strict=True))
    assert set(ended) == {"first", "second", "third"}
    assert ended["first"] < min(submitted["second"], submitted["third"])
    assert history.likes() == {"third": "first"}


def test_a_later_submission_without_an_answer_is_made_again(tmp_path: Path) -> None:
    class Deaf:
        def __init__(self) -> None:
            self.asked: list[str] = []

        def submit(self, role: str, request: JobRequest) -> str:
            self.asked.append(role)
            if self.asked.count(role) == 1 and role == "b":
                raise Unreachable("no answer")
            return f"job-{role}"

    runtime: Any = Deaf()
    one = JobRequest("one", ("true",))
    done = Observation(jobs={"a": JobView("a", "job-a", "SUCCEEDED")})
    with HistoryWriter(tmp_path / "history.jsonl") as history:
        load = Load({"a": one, "b": replace(one, starts_after="a")}, runtime, history)
        assert load.submit_due(Observation())
        assert not load.done
        assert not load.submit_due(done)
        assert load.submit_due(done)
        assert load.done
    assert runtime.asked == ["a", "b", "b"]


@pytest.mark.parametrize("wrong", [{"starts_after": "nobody"}, {"like": "nobody"}])
def test_a_job_that_names_no_other_job_is_refused_before_anything_starts(
    wrong: dict[str, str],
) -> None:
    jobs = {"main": JobRequest("m", ("true",), **wrong)}  # type: ignore[arg-type]
    experiment = Experiment("e", "", "w", lambda draw: (), ())
    with pytest.raises(UsageError, match="nobody"):
        make_plan(experiment, 1, 3, jobs, images={})


def test_a_job_of_several_tasks_is_seen_as_one_role_each() -> None:
    tasks = (TaskView("t0", "COMPLETED"), TaskView("t1", "LEASED", "worker-1", "l", 1, 7))
    views = JobView("storm", "job-1", "RUNNING", tasks=tasks).split()
    assert [view.role for view in views] == ["storm", "storm/0", "storm/1"]
    assert [view.terminal for view in views] == [False, True, False]
    assert views[2].task == tasks[1]
    alone = JobView("main", "job-1", "RUNNING", tasks[1])
    assert alone.split() == (alone,)


def test_a_gap_in_the_numbers_of_a_log_is_found_and_a_restart_is_none(tmp_path: Path) -> None:
    lines = ['{"seq": 1}', "free text", '{"seq": 2}', '{"seq": 1}', '{"seq": 4}', '{"torn']
    (tmp_path / "worker-1.log").write_text("\n".join(lines), encoding="utf-8")
    assert collect.sequences(tmp_path) == {
        "worker-1": {
            "lines": 6,
            "numbered": 4,
            "processes": 2,
            "gaps": [{"line": 5, "after": 1, "found": 4}],
        }
    }


def test_an_application_crash_lands_only_where_it_ended_as_it_was_armed_to(harness: Any) -> None:
    from chaos.faults.app_crash import FAULT

    failed: JsonMap = {
        "type": "TASK_ATTEMPT_FAILED",
        "task_id": "t",
        "lease_id": "l",
        "mono_ns": 5,
        "data": {"evidence": {"ended_by": "exit", "exit_code": 3, "step": 12}},
    }

    class Told:
        action = Action("f", "app_crash", "task of main", Trigger(), 1.0, {"exit_code": 3})

        def observation(self) -> Observation:
            return Observation(events=(failed,))

    scene: Any = Told()
    found = FAULT.receipt(scene, {"task_id": "t"})
    assert (found.landed, found.evidence["step"], found.lost_lease_id) == (Landed.LANDED, 12, None)
    scene.action = replace(Told.action, params={"exit_code": 4})
    assert FAULT.receipt(scene, {"task_id": "t"}).landed is Landed.MISSED
    missing: Receipt = FAULT.receipt(scene, {"task_id": "another"})
    assert missing.landed is Landed.MISSED


def test_a_longer_repetition_changes_nothing_of_the_shorter_one() -> None:
    from chaos import registry

    for name in ("lease_recovery", "checkpoint_integrity"):
        faults = registry.experiment(name).faults
        assert faults(Draw(7, 9))[:4] == faults(Draw(7, 4))


def test_a_kill_in_a_window_follows_the_task_to_its_next_holder(
    harness: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first holder opens no window and loses the task by itself; the second one is hit."""
    from chaos.faults.kill_in_write_window import FAULT

    def window(self: Any, target: Any, min_step: int, timeout_s: float) -> WriteWindow | None:
        if target.attempt_number == 1:
            self.down.add(target.container.service)
            while self.jobs[target.job_id].attempts == 1:
                time.sleep(0.002)
            self.down.discard(target.container.service)
            return None
        return WriteWindow(min_step, time.monotonic_ns())

    torn = {"parts": {"part-0": 1}, "manifest": False, "committed": False}
    monkeypatch.setattr(FakeSystem, "wait_write_window", window)
    monkeypatch.setattr(FakeSystem, "staged_parts", lambda self, *args: torn)
    kind = "kill_in_write_window"
    action = Action(kind, kind, "holder of main", Trigger(step_at_least=5), 20.0, {"min_step": 6})
    harness.run(FAULT, action)
    (receipt,) = harness.history.of("fault_receipt")
    evidence: Any = receipt["evidence"]
    assert (receipt["landed"], evidence["tries"], evidence["kills"]) == ("landed", 2, 1)
    assert receipt["lost_lease_id"] == "lease-main-2"


def test_a_fault_that_misses_is_aimed_again_as_often_as_it_may(
    harness: Any, kill: Any, action: Any
) -> None:
    """Its receipt is that of the last time and tells the others; each time undoes its own."""
    seen: list[str] = []

    def during(scene: Scene) -> None:
        seen.append(scene.action.fault_id)
        if len(seen) < 3:
            raise NoTarget("moved on")

    harness.run(kill(during=during), replace(action(5), tries=4, comeback=Comeback.AT_ONCE))
    (receipt,) = harness.history.of("fault_receipt")
    missed = items(mapping(receipt["evidence"])["missed_before"])
    assert receipt["landed"] == Landed.LANDED
    assert [each["landed"] for each in missed] == [Landed.MISSED] * 2
    undos = [undo for undo in harness.history.of("undo") if undo["fault_id"] is not None]
    for state in ("promised", "early"):
        found = [undo["undo_id"] for undo in undos if undo["state"] == state]
        assert found == ["kill-1/0", "kill-1/1", "kill-1/2"]


def test_a_fault_that_always_misses_is_given_up(harness: Any, kill: Any, action: Any) -> None:
    seen: list[str] = []

    def during(scene: Scene) -> None:
        seen.append(scene.action.fault_id)
        raise NoTarget("moved on")

    harness.run(kill(during=during), replace(action(5), tries=3))
    assert len(seen) == 3
    assert [each["landed"] for each in harness.history.of("fault_receipt")] == [Landed.MISSED]


def test_a_kill_whose_target_had_just_ended_its_task_is_aimed_again(
    harness: Any, kill: Any, action: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Observation, "accepted", lambda seen, lease_id: True)
    harness.run(kill(), replace(action(5), tries=2, comeback=Comeback.AT_ONCE))
    (receipt,) = harness.history.of("fault_receipt")
    evidence = mapping(receipt["evidence"])
    assert receipt["landed"] == Landed.MISSED
    assert "had just ended" in str(evidence["reason"])
    assert len(items(evidence["missed_before"])) == 1
