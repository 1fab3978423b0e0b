"""What a run of many faults is counted by: classes, actions, integrity, steps, walls."""

from typing import Any

import pytest

from chaos import registry
from chaos.figures import cases, figures, integrity
from chaos.history import History, Record
from chaos.judge import judge
from chaos.model import Verdict
from chaos.schedule import expects

S = 1_000_000_000
LOST = expects("retry_task", "node_loss", resumes=True)
CRASH = expects("retry_task", "unknown", "worker_crash", resumes=True)
BROKEN = expects("fail_job", "application_error")


class Tale:
    """A history in the making; every record takes a second."""

    def __init__(self, **faults: dict[str, Any]) -> None:
        self.records: list[Record] = []
        self.events = 0
        schedule = [
            {"fault_id": name, "kind": "k", "target": "t", "params": params}
            for name, params in faults.items()
        ]
        self.add("plan", experiment="e", seed=1, schedule=schedule, invariants=[])

    def add(self, kind: str, /, **data: Any) -> None:
        seq = len(self.records)
        self.records.append(Record(seq, seq * S, "boot", "2026", "test", kind, data))

    def submit(self, role: str, **more: Any) -> None:
        self.add("job_submitted", role=role, job_id=f"job-{role}", lease_s=3.0, **more)

    def event(self, kind: str, lease: str, lane: str = "main", **data: Any) -> None:
        self.events += 1
        self.add(
            "event",
            id=self.events,
            type=kind,
            mono_ns=len(self.records) * S,
            boot_id="boot",
            job_id=f"job-{lane.partition('/')[0]}",
            task_id=f"task-{lane}" if lease else None,
            lease_id=lease or None,
            data=data,
        )

    def claim(self, lease: str, lane: str = "main", attempt: int = 1) -> None:
        self.event("LEASE_CLAIMED", lease, lane, attempt_number=attempt)
        task = {"task_id": f"task-{lane}", "lease_id": lease, "step": None}
        self.add("task", role=lane, task=task)

    def receipt(self, fault_id: str, lease: str, kind: str = "kill", **evidence: Any) -> None:
        evidence = {"lease_id": lease, **evidence}
        self.add("fault_receipt", fault_id=fault_id, kind=kind, landed="landed", evidence=evidence)

    def classified(self, lease: str, name: str, action: str, lane: str = "main") -> None:
        self.event("TASK_ATTEMPT_FAILED", lease, lane, evidence={"step": 15})
        self.event("FAILURE_CLASSIFIED", lease, lane, failure_class=name)
        self.event("RECOVERY_ACTION_SELECTED", lease, lane, action=action)

    def tree(self, lane: str = "main", **links: int | None) -> None:
        lineage = [
            {"attempt_id": lease, "manifest_id": f"m-{step}", "step": step}
            for lease, step in links.items()
        ]
        self.add("checkpoints", role=lane, lineage=lineage, checkpoints=[])

    @property
    def history(self) -> History:
        return History(self.records)

    def verdict(self, name: str) -> tuple[Verdict, str]:
        (finding,) = judge(self.history, registry.invariants([name])).findings
        return finding.verdict, finding.detail


def lapsed(step: int | None = 10) -> Tale:
    """A holder is killed at step 14 and its lease lapses; the next attempt takes over `step`."""
    tale = Tale(kill=LOST)
    tale.submit("main", like="reference")
    tale.claim("a")
    tale.receipt("kill", "a", step=14)
    tale.event("LEASE_EXPIRED", "a")
    tale.event("TASK_REQUEUED", "a")
    tale.claim("b", attempt=2)
    tale.tree(a=None, b=step)
    return tale


def failed(name: str, action: str, expected: dict[str, Any], *, again: bool) -> Tale:
    """An attempt crashes by itself and is called `name`."""
    tale = Tale(crash=expected)
    tale.submit("main", like="reference")
    tale.claim("a")
    tale.classified("a", name, action)
    tale.receipt("crash", "a", kind="app_crash", step=15)
    if again:
        tale.claim("b", attempt=2)
    tale.tree(a=None, b=10)
    return tale


def test_a_lapsed_lease_that_is_claimed_again_and_resumes_is_as_expected() -> None:
    (case,) = cases(lapsed().history)
    assert (case.lane, case.wrong) == ("main", ())
    assert case.told == ("its lease lapsed", "tried again", "resumed from step 10")
    assert lapsed().verdict("typed_as_injected")[0] is Verdict.VALID


@pytest.mark.parametrize(
    ("tale", "problem"),
    [
        (lapsed(None), "it did not go on from a checkpoint"),
        (lapsed(14), "resumed from step 14, 14 was hit"),
        (failed("worker_crash", "fail_job", CRASH, again=False), "the action was fail_job"),
        (failed("data_error", "retry_task", CRASH, again=True), "called data_error, not unknown"),
        (failed("unknown", "retry_task", CRASH, again=False), "it was not tried again"),
        (failed("application_error", "fail_job", BROKEN, again=True), "it was tried again"),
    ],
)
def test_a_wrong_class_action_or_resume_is_found_and_named(tale: Tale, problem: str) -> None:
    verdict, detail = tale.verdict("typed_as_injected")
    assert verdict is Verdict.VIOLATED
    assert problem in detail
    assert figures(tale.history)["correct"] == 0


@pytest.mark.parametrize(
    "tale",
    [
        failed("unknown", "retry_task", CRASH, again=True),
        failed("application_error", "fail_job", BROKEN, again=False),
    ],
)
def test_the_right_class_and_action_are_counted(tale: Tale) -> None:
    assert tale.verdict("typed_as_injected")[0] is Verdict.VALID
    assert (figures(tale.history)["correct"], figures(tale.history)["cases"]) == (1, 1)


def test_a_fault_that_did_not_land_is_no_case() -> None:
    tale = Tale(kill=LOST)
    tale.submit("main")
    tale.add("fault_receipt", fault_id="kill", landed="missed", evidence={})
    assert tale.verdict("typed_as_injected")[0] is Verdict.UNKNOWN


def test_a_run_that_was_stopped_before_its_trees_were_read_says_nothing_of_resumes() -> None:
    """What nobody looked at is unknown, never a violation."""
    tale = lapsed()
    assert tale.records.pop().kind == "checkpoints"
    verdict, detail = tale.verdict("typed_as_injected")
    assert (verdict, "no checkpoint tree was recorded" in detail) == (Verdict.UNKNOWN, True)


def test_a_worker_killed_before_it_told_a_step_has_gone_on_where_a_save_was_cut_off() -> None:
    tale = lapsed()
    receipt: Any = tale.records[4].data
    assert tale.records[4].kind == "fault_receipt"
    receipt |= {"took_effect_ns": 4 * S, "lost_lease_id": "a"}
    assert figures(tale.history)["mttr_s"] == []
    tale.receipt("next", "b", step=15, window_seen_ns=9 * S)
    assert figures(tale.history)["mttr_s"] == [5.0]


def torn(step: int, taken: int | None, *, kills: int = 1, accepted: bool = True) -> Tale:
    tale = Tale(kill=LOST)
    tale.submit("main", like="reference")
    tale.claim("a")
    tale.receipt("kill", "a", kind="kill_in_write_window", step=step, kills=kills)
    tale.claim("b", attempt=2)
    if accepted:
        tale.event("TASK_COMMIT_ACCEPTED", "b")
    tale.tree(a=None, b=taken)
    return tale


@pytest.mark.parametrize(
    ("tale", "rate"),
    [
        (torn(14, 13), 1.0),
        (torn(14, 14), 0.0),
        (torn(14, None), 0.0),
        (torn(14, 13, accepted=False), 0.0),
    ],
)
def test_integrity_is_survived_kills_over_kills_in_the_window(tale: Tale, rate: float) -> None:
    assert integrity(tale.history)["integrity_rate"] == rate


def test_a_kill_that_came_too_late_is_in_no_denominator() -> None:
    found = integrity(torn(14, 13, kills=3).history)
    assert (found["kills_in_window"], found["windows_missed"]) == (1, 2)
    assert found["integrity_rate"] == 1.0


def storm() -> Tale:
    """Two trials, twice; in the storm the first one crashes at step 15 and resumes from 10."""
    tale = Tale()
    for role, like in (("clean", None), ("storm", "clean")):
        tale.submit(role, like=like)
        ends = []
        for index in (0, 1):
            lane, lease = f"{role}/{index}", f"{role}-{index}"
            tale.claim(lease, lane)
            if role == "storm" and index == 0:
                tale.classified(lease, "unknown", "retry_task", lane)
                tale.tree(lane, **{lease: None, "again": 10})
                lease = "again"
                tale.claim(lease, lane, 2)
            tale.event("TASK_COMMIT_ACCEPTED", lease, lane)
            ends.append(
                {
                    "task_id": f"task-{lane}",
                    "job_id": f"job-{role}",
                    "state": "COMPLETED",
                    "lease_id": lease,
                    "attempts": 2 if lease == "again" else 1,
                    "metrics": {
                        "steps": 20,
                        "weights_sha256": f"w{index}",
                        "sample_chain": f"c{index}",
                        "samples_seen": 5,
                    },
                }
            )
        tale.event("JOB_SUCCEEDED", "", role)
        tale.add("job_final", role=role, job={"state": "SUCCEEDED"}, tasks=ends, metrics=None)
    return tale


def test_a_storm_is_counted_task_by_task_against_its_clean_run() -> None:
    found = figures(storm().history)
    assert (found["tasks"], found["completed"], found["crashed"], found["attempts"]) == (2, 2, 1, 3)
    assert (found["useful_steps"], found["executed_steps"]) == (40, 45)
    assert found["goodput"] == round(40 / 45, 4)
    assert found["recompute_fraction"] == 0.125
    assert found["goodput_lower_bound"] == 0.8
    walls: Any = found["wall_s"]
    assert found["penalty"] == round(walls["storm"] / walls["clean"] - 1, 4)


def test_every_task_of_a_storm_must_end_like_its_twin() -> None:
    tale = storm()
    assert tale.verdict("same_as_reference")[0] is Verdict.VALID
    tasks: Any = tale.records[-1].data["tasks"]
    tasks[1]["metrics"]["weights_sha256"] = "other"
    verdict, detail = tale.verdict("same_as_reference")
    assert verdict is Verdict.VIOLATED
    assert "storm, task 1: weights_sha256" in detail


@pytest.mark.parametrize(
    ("state", "expected"), [("FAILED", Verdict.VALID), ("SUCCEEDED", Verdict.VIOLATED)]
)
def test_a_job_that_must_fail_is_lost_where_it_does_not(state: str, expected: Verdict) -> None:
    tale = Tale()
    tale.submit("broken", expected="FAILED")
    tale.add("job_final", role="broken", job={"state": state}, tasks=[], metrics=None)
    assert tale.verdict("no_task_lost")[0] is expected


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        ({"numbered": 5, "processes": 2, "gaps": []}, Verdict.VALID),
        ({"numbered": 5, "gaps": [{"line": 3, "after": 1, "found": 3}]}, Verdict.UNKNOWN),
        ({"numbered": 0, "gaps": []}, Verdict.UNKNOWN),
    ],
)
def test_a_log_that_lacks_lines_proves_nothing(log: dict[str, Any], expected: Verdict) -> None:
    tale = Tale()
    tale.add("logs", coordinator=log)
    assert tale.verdict("logs_complete")[0] is expected
