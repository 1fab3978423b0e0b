"""The judge composes what the invariants say."""

from typing import Any

import pytest

from chaos.history import History, HistoryError, Record
from chaos.judge import FIRST_STANDING, STANDING, invariants_of, judge
from chaos.model import Verdict
from chaos.ports import Invariant


def history(*extra: tuple[str, dict[str, Any]], end: str = "completed") -> History:
    plan = {
        "experiment": "e",
        "seed": 7,
        "schedule": [{"fault_id": "f", "kind": "kill", "target": "holder of main"}],
        "invariants": ["mine"],
    }
    entries = [("plan", plan), *extra, ("end", {"end": end, "reason": None})]
    return History(
        Record(seq, seq, "boot", "2026", "test", kind, data)
        for seq, (kind, data) in enumerate(entries)
    )


def test_a_fault_that_came_too_late_is_shown_as_missed_though_its_container_died() -> None:
    receipt = {
        "fault_id": "f",
        "landed": "landed",
        "lost_lease_id": "a",
        "evidence": {"exit_code": 137},
    }
    event = {"id": 1, "type": "TASK_COMMIT_ACCEPTED", "mono_ns": 1, "boot_id": "boot"}
    told = {"job_id": "job-1", "task_id": "t", "lease_id": "a"}
    judgement = judge(history(("event", event | told), ("fault_receipt", receipt)), [])
    (fault,) = judgement.faults
    assert fault["landed"] == "missed"
    assert "just ended" in str(fault["evidence"])


def saying(verdict: Verdict) -> Invariant:
    return Invariant(f"says-{verdict}", lambda _: (verdict, "because"))


def crashing(history: History) -> tuple[Verdict, str]:
    raise KeyError("nothing here")


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ([Verdict.VALID, Verdict.VALID], Verdict.VALID),
        ([Verdict.VALID, Verdict.UNKNOWN], Verdict.UNKNOWN),
        ([Verdict.UNKNOWN, Verdict.VIOLATED, Verdict.VALID], Verdict.VIOLATED),
        ([], Verdict.UNKNOWN),
    ],
)
def test_the_worst_verdict_counts(verdicts: list[Verdict], expected: Verdict) -> None:
    assert judge(history(), [saying(verdict) for verdict in verdicts]).verdict is expected


def test_a_judge_that_crashes_is_unknown_never_a_pass() -> None:
    judgement = judge(history(), [saying(Verdict.VALID), Invariant("broken", crashing)])
    assert judgement.verdict is Verdict.UNKNOWN
    assert "crashed: KeyError" in judgement.findings[1].detail


def test_figures_that_cannot_be_computed_leave_a_verdict_that_is_unknown() -> None:
    lost = {"fault_id": "f", "lost_lease_id": "lease-1", "took_effect_ns": 5}
    told = history(("fault_receipt", lost), ("event", {"id": "seven"}))
    judgement = judge(told, [saying(Verdict.VALID)])
    assert judgement.verdict is Verdict.UNKNOWN
    assert judgement.findings[-1].name == "figures"


@pytest.mark.parametrize("end", ["cannot_run", "interrupted"])
def test_a_run_that_did_not_complete_is_at_best_unknown(end: str) -> None:
    assert judge(history(end=end), [saying(Verdict.VALID)]).verdict is Verdict.UNKNOWN
    assert judge(history(end=end), [saying(Verdict.VIOLATED)]).verdict is Verdict.VIOLATED


def test_a_history_without_a_plan_cannot_be_judged() -> None:
    with pytest.raises(HistoryError, match="plan"):
        judge(History([]), [])


def test_a_run_is_judged_by_its_own_invariants_and_the_standing_ones() -> None:
    assert invariants_of(history(("run", {"schema": 2}))) == ("mine", *STANDING)


def test_a_history_of_before_is_judged_as_it_was_then() -> None:
    """It has nothing of what the later invariants need, and must not turn unknown."""
    assert invariants_of(history()) == ("mine", *FIRST_STANDING)


def test_a_planned_fault_without_a_receipt_is_listed_as_missed() -> None:
    (fault,) = judge(history(), []).faults
    assert (fault["id"], fault["landed"], fault["fired_at"]) == ("f", "missed", None)


def test_the_verdict_has_the_shape_of_the_contract() -> None:
    receipt = {"fault_id": "f", "landed": "landed", "evidence": {"exit_code": 137}}
    told = history(("fault_firing", {"fault_id": "f"}), ("fault_receipt", receipt))
    verdict = judge(told, [saying(Verdict.VALID)]).to_json()
    assert verdict["schema"] == "chaos_v1"
    assert verdict["faults"] == [
        {
            "id": "f",
            "kind": "kill",
            "target": "holder of main",
            "fired_at": "2026",
            "landed": "landed",
            "evidence": {"exit_code": 137},
        }
    ]
    assert verdict["invariants"] == [
        {"name": "says-valid", "verdict": "valid", "detail": "because"}
    ]
    names = {"containers", "networks", "volumes", "toxics", "paused", "chains"}
    assert set(verdict["clean"]) == names
    assert {"mttd_s", "mttr_s", "goodput"} <= set(verdict["figures"])
