"""Judges of rotten artifacts, full volumes and damage to several jobs, on made-up histories."""

from typing import Any

import pytest

from chaos import registry
from chaos.history import History, Record
from chaos.model import Verdict

S = 1_000_000_000
KEY, DIGEST = "outputs/main/output-0.bin", "d" * 64
ROTTED = {"key": KEY, "sha256": DIGEST, "before_sha256": DIGEST, "after_sha256": "e" * 64}


def history(*records: tuple[str, dict[str, Any]]) -> History:
    return History(
        Record(seq, S * (seq + 1), "boot", "2026", "test", kind, data)
        for seq, (kind, data) in enumerate(records)
    )


def event(number: int, kind: str, **changes: Any) -> tuple[str, dict[str, Any]]:
    data = {"key": KEY, "sha256": DIGEST, "reason": "its bytes hash to something else"}
    told = {"id": number, "type": kind, "mono_ns": 50 * S, "boot_id": "boot", "data": data}
    return "event", {
        **told,
        "job_id": "job-main",
        "task_id": "task-main",
        "lease_id": None,
    } | changes


def receipt(**evidence: Any) -> tuple[str, dict[str, Any]]:
    names = {"fault_id": "f", "landed": "landed", "took_effect_ns": 40 * S}
    return "fault_receipt", {**names, "evidence": evidence}


def rot(**changes: Any) -> tuple[str, dict[str, Any]]:
    told: dict[str, Any] = {"job_id": "job-main", "task_id": "task-main", "at_ns": 40 * S}
    told |= {"mode": "zero", "rotted": [ROTTED], "found_by": "read", "given_out": [None]}
    return receipt(**(told | changes))


def judged(name: str, *records: tuple[str, dict[str, Any]]) -> tuple[Verdict, str]:
    (invariant,) = registry.invariants([name])
    return invariant.judge(history(*records))


def test_rot_that_is_told_with_its_job_is_valid() -> None:
    told = judged("rot_found", rot(), event(1, "ARTIFACT_CORRUPT"))
    words = "1 damaged artifact told within 10.0 s, none given out"
    assert told == (Verdict.VALID, words)


@pytest.mark.parametrize(
    "changes",
    [
        {"job_id": "job-other"},
        {"task_id": None},
        {"mono_ns": 39 * S},
        {"data": {"key": "another", "sha256": DIGEST}},
        {"data": {"key": KEY, "sha256": "0" * 64}},
    ],
)
def test_an_event_that_names_something_else_does_not_tell_of_the_rot(
    changes: dict[str, Any],
) -> None:
    verdict, why = judged("rot_found", rot(), event(1, "ARTIFACT_CORRUPT", **changes))
    assert verdict is Verdict.VIOLATED
    assert KEY in why


def test_damaged_bytes_that_were_given_out_are_a_violation_even_when_told() -> None:
    given = rot(given_out=["e" * 64])
    verdict, _ = judged("rot_found", given, event(1, "ARTIFACT_CORRUPT"))
    assert verdict is Verdict.VIOLATED


def test_a_file_that_is_gone_and_refused_was_not_given_out() -> None:
    gone = rot(rotted=[{**ROTTED, "after_sha256": None}])
    assert judged("rot_found", gone, event(1, "ARTIFACT_CORRUPT"))[0] is Verdict.VALID


def test_each_of_two_swapped_files_given_out_for_the_other_is_a_violation() -> None:
    other = {**ROTTED, "key": "outputs/main/output-1.bin", "sha256": "e" * 64}
    swapped = rot(rotted=[ROTTED, other], given_out=["e" * 64, "d" * 64])
    assert judged("rot_found", swapped)[0] is Verdict.VIOLATED


@pytest.mark.parametrize(
    "records", [(), (rot(found_by=None),), (rot(rotted=[]),), (rot(rotted=[{"key": None}]),)]
)
def test_where_nobody_had_to_find_anything_nothing_can_be_said(records: Any) -> None:
    assert judged("rot_found", *records)[0] is Verdict.UNKNOWN


REFUSED = {"status": 503, "refused": "takes no more bytes", "retry_after_s": 1.0}
TAKEN = {"status": 200, "refused": None, "retry_after_s": 0.0}


@pytest.mark.parametrize(
    ("during", "after", "verdict"),
    [
        ([TAKEN, REFUSED], TAKEN, Verdict.VALID),
        ([{**REFUSED, "status": 507, "retry_after_s": 0.0}], TAKEN, Verdict.VALID),
        ([{**REFUSED, "retry_after_s": 0.0}], TAKEN, Verdict.VIOLATED),
        ([{**REFUSED, "status": 500}], TAKEN, Verdict.VIOLATED),
        ([{**REFUSED, "status": None}], TAKEN, Verdict.VIOLATED),
        ([REFUSED], REFUSED, Verdict.VIOLATED),
        ([TAKEN], TAKEN, Verdict.UNKNOWN),
    ],
)
def test_a_full_volume_is_told_as_such_and_taken_from_again_afterwards(
    during: list[Any], after: dict[str, Any], verdict: Verdict
) -> None:
    closed = receipt(volume="artifacts", canary_during=during, canary_after=after)
    assert judged("refuses_when_full", closed)[0] is verdict


def test_a_closed_checkpoint_volume_says_nothing_of_the_coordinator() -> None:
    assert judged("refuses_when_full", receipt(volume="checkpoints"))[0] is Verdict.UNKNOWN


def damaged_job(role: str, log: str, step: int = 20) -> tuple[tuple[str, dict[str, Any]], ...]:
    corrupted = [{"step": step, "manifest_id": f"{role}-{step}"}]
    return (
        ("job_submitted", {"role": role, "job_id": f"job-{role}"}),
        ("task", {"role": role, "task": {"task_id": f"task-{role}"}}),
        ("job_final", {"role": role, "logs": log}),
        receipt(task_id=f"task-{role}", corrupted=corrupted),
    )


def log_of(role: str, *refused: int) -> str:
    lines = [f'{{"event": "checkpoint_rejected", "step": {n}, "reason": "cut"}}' for n in refused]
    return "\n".join([*lines, f'{{"event": "resumed", "step": 10, "manifest_id": "{role}-10"}}'])


def test_each_damaged_job_must_say_why_it_passed_its_checkpoint_over() -> None:
    both = (*damaged_job("cut", log_of("cut", 20)), *damaged_job("zeroed", log_of("zeroed", 20)))
    told = judged("rejection_recorded", *both)
    words = "{0}: step 20 refused (cut); resumed from step 10"
    assert told == (Verdict.VALID, f"{words.format('cut')}; {words.format('zeroed')}")
    one = (*damaged_job("cut", log_of("cut", 20)), *damaged_job("zeroed", log_of("zeroed")))
    verdict, why = judged("rejection_recorded", *one)
    assert verdict is Verdict.VIOLATED
    assert why.startswith("zeroed: no reason")


def resumed(taken: int, corrupted: tuple[int, ...]) -> tuple[Verdict, str]:
    """Return what is said of an attempt that took over a step although some were corrupted."""
    steps = [
        {"step": n, "attempt_id": "lease-1", "manifest_id": f"m-{n}", "state": "committed"}
        for n in (10, 20, 30)
    ]
    hurt = [{"step": n, "manifest_id": f"m-{n}"} for n in corrupted]
    lineage = [
        {"attempt_id": "lease-1", "manifest_id": None, "step": None},
        {"attempt_id": "lease-2", "manifest_id": f"m-{taken}", "step": taken},
    ]
    task = {"task_id": "task-main", "state": "COMPLETED", "lease_id": "lease-2"}
    plain = {"type": "LEASE_CLAIMED", "data": {}}
    return judged(
        "resume_newest_valid",
        ("job_submitted", {"role": "main", "job_id": "job-main", "like": "reference"}),
        ("task", {"role": "main", "task": {"task_id": "task-main"}}),
        event(1, "LEASE_CLAIMED", **{**plain, "mono_ns": 2 * S, "lease_id": "lease-1"}),
        ("committed", {"role": "main", "steps": steps}),
        receipt(task_id="task-main", corrupted=hurt, step=corrupted[0] if corrupted else None),
        event(2, "LEASE_CLAIMED", **{**plain, "mono_ns": 60 * S, "lease_id": "lease-2"}),
        ("job_final", {"role": "main", "tasks": [{**task, "resumed_from": taken}]}),
        ("checkpoints", {"role": "main", "checkpoints": [], "lineage": lineage}),
    )


@pytest.mark.parametrize(
    ("taken", "corrupted", "verdict"),
    [
        (10, (30, 20), Verdict.VALID),
        (20, (30, 20), Verdict.VIOLATED),
        (20, (30,), Verdict.VALID),
        (10, (30,), Verdict.VIOLATED),
        (30, (), Verdict.VALID),
        (20, (), Verdict.VIOLATED),
    ],
)
def test_the_newest_step_that_no_fault_has_named_must_be_taken_over(
    taken: int, corrupted: tuple[int, ...], verdict: Verdict
) -> None:
    assert resumed(taken, corrupted)[0] is verdict, resumed(taken, corrupted)
