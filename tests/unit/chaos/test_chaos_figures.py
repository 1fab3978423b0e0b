"""Figures are counted from a history, never asserted into being."""

from typing import Any

import pytest

from chaos.figures import cases, figures, goodput, losses, untold
from chaos.history import History, Record
from chaos.invariants.faults_landed import INVARIANT as FAULTS_LANDED
from chaos.model import Verdict

S = 1_000_000_000
TIMES = ("mttd_s", "reclaim_s", "mttr_s", "commit_s")


def history(*entries: tuple[int, str, dict[str, Any]], boot_id: str = "boot") -> History:
    return History(
        Record(seq, at_s * S, boot_id, "2026", "test", kind, data)
        for seq, (at_s, kind, data) in enumerate(entries)
    )


def event(number: int, at_s: int, kind: str, lease: str) -> tuple[int, str, dict[str, Any]]:
    data = {
        "id": number,
        "type": kind,
        "mono_ns": at_s * S,
        "boot_id": "boot",
        "job_id": "job-1",
        "task_id": "t",
        "lease_id": lease,
    }
    return at_s, "event", data


def task(at_s: int, lease: str, step: int | None) -> tuple[int, str, dict[str, Any]]:
    return at_s, "task", {"role": "main", "task": {"lease_id": lease, "step": step}}


RECEIPT = (
    12,
    "fault_receipt",
    {"fault_id": "f", "landed": "landed", "took_effect_ns": 10 * S, "lost_lease_id": "a"},
)
LOST = (
    (1, "job_submitted", {"role": "main", "job_id": "job-1", "lease_s": 3.0}),
    event(1, 2, "LEASE_CLAIMED", "a"),
    task(9, "a", 50),
    RECEIPT,
    event(2, 13, "LEASE_EXPIRED", "a"),
    event(3, 14, "LEASE_CLAIMED", "b"),
    task(15, "b", None),
    task(17, "b", 41),
    (
        20,
        "checkpoints",
        {
            "role": "main",
            "lineage": [
                {"attempt_id": "a", "manifest_id": None, "step": None},
                {"attempt_id": "b", "manifest_id": "m", "step": 40},
            ],
        },
    ),
    (21, "job_final", {"role": "main", "tasks": [{"lease_id": "b"}], "metrics": {"steps": 60}}),
)


def test_a_loss_is_measured_from_the_moment_the_fault_took_hold() -> None:
    (loss,) = losses(history(*LOST))
    assert (loss.detected_s, loss.reclaimed_s, loss.progressed_s) == (3.0, 4.0, 7.0)
    assert loss.lease_s == 3.0
    measured = figures(history(*LOST))
    assert (measured["mttd_s"], measured["reclaim_s"], measured["mttr_s"]) == ([3.0], [4.0], [7.0])
    assert measured["goodput"] == round(60 / 70, 4)


def test_a_holder_that_ended_its_task_before_it_died_was_no_loss_and_its_fault_missed() -> None:
    """Between the look that a kill fires on and the death itself, the task may end."""
    receipt = RECEIPT[2] | {"evidence": {"exit_code": 137, "lease_id": "a"}}
    plan = {"schedule": [{"fault_id": "f", "params": {"action": "retry_task", "classes": []}}]}
    told = history(
        (0, "plan", plan),
        (1, "job_submitted", {"role": "main", "job_id": "job-1", "lease_s": 3.0}),
        event(1, 2, "LEASE_CLAIMED", "a"),
        event(2, 11, "TASK_COMMIT_ACCEPTED", "a"),
        (12, "fault_receipt", receipt),
    )
    assert (losses(told), untold(told), cases(told)) == ((), (), ())
    verdict, why = FAULTS_LANDED.judge(told)
    assert verdict is Verdict.UNKNOWN
    assert "f missed" in why


def test_goodput_counts_what_was_executed_twice() -> None:
    assert goodput(history(*LOST)) == pytest.approx(60 / 70)


def test_steps_that_a_cut_off_holder_saved_unheard_are_counted() -> None:
    saved = (16, "committed", {"role": "main", "steps": [{"attempt_id": "a", "step": 58}]})
    assert goodput(history(*LOST, saved)) == pytest.approx(60 / 78)


def test_a_claim_without_an_expiry_is_the_detection() -> None:
    told = [entry for entry in LOST if entry[2].get("type") != "LEASE_EXPIRED"]
    (loss,) = losses(history(*told))
    assert loss.detected_s == 4.0


def test_the_coordinators_times_are_not_compared_with_those_of_another_boot() -> None:
    (loss,) = losses(history(*LOST, boot_id="another"))
    assert (loss.detected_s, loss.reclaimed_s) == (None, None)


def test_a_save_that_a_fault_interrupted_proves_the_steps_before_it() -> None:
    evidence = {"lease_id": "a", "step": 55}
    interrupted = (12, "fault_receipt", {"fault_id": "f", "evidence": evidence})
    foreign = (12, "fault_receipt", {"fault_id": "g", "evidence": evidence | {"lease_id": "z"}})
    assert goodput(history(*LOST, interrupted, foreign)) == pytest.approx(60 / 75)


def test_without_a_loss_there_are_no_times_and_goodput_may_be_unknown() -> None:
    measured = figures(history())
    assert measured == {name: [] for name in TIMES} | {"goodput": None}
