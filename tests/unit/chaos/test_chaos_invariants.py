"""Judges against made-up histories: what is good is valid, what is broken is found."""

import dataclasses
import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chaos import registry
from chaos.history import History, Record
from chaos.judge import FIRST_STANDING, judge
from chaos.model import Finding, Verdict
from chaos.words import counted

S = 1_000_000_000
NAMES = ("resume_newest_valid", "same_as_reference", *FIRST_STANDING)
INVARIANTS = {invariant.name: invariant for invariant in registry.invariants(NAMES)}


@dataclass
class Shape:
    """What happens in a history: for each lost attempt its checkpoints and whether it returns."""

    losses: list[tuple[int, bool]]
    flip: bool = False


@dataclass
class Story:
    """A history in the making; every action takes a second."""

    shape: Shape
    records: list[Record] = field(default_factory=list)
    now_ns: int = S
    steps: list[dict[str, Any]] = field(default_factory=list)
    lineage: list[dict[str, Any]] = field(default_factory=list)

    def add(self, kind: str, **data: Any) -> None:
        self.now_ns += S
        record = Record(len(self.records), self.now_ns, "boot", "2026", "test", kind, data)
        self.records.append(record)

    def event(self, kind: str, attempt: int, role: str = "main", **data: Any) -> None:
        self.now_ns += S
        number = 1 + sum(record.kind == "event" for record in self.records)
        event = {
            "id": number,
            "type": kind,
            "mono_ns": self.now_ns,
            "boot_id": "boot",
            "job_id": f"job-{role}",
            "task_id": f"task-{role}",
            "lease_id": f"{role}-{attempt}",
            "data": {"attempt_number": attempt, **data},
        }
        self.add("event", **event)

    def save(self, attempt: int, step: int) -> None:
        found = {"step": step, "attempt_id": f"main-{attempt}", "state": "committed"}
        self.steps = [*self.steps, {**found, "manifest_id": f"m-{attempt}-{step}"}]
        self.add("committed", role="main", steps=self.steps)

    def begin(self, attempt: int, newest: dict[str, Any] | None) -> None:
        self.event("LEASE_CLAIMED", attempt)
        link = {"attempt_id": f"main-{attempt}", "manifest_id": None, "step": None}
        if newest:
            link |= {"manifest_id": newest["manifest_id"], "step": newest["step"]}
        self.lineage.append(link)
        self.add("task", role="main", task={"lease_id": f"main-{attempt}", "step": 1})

    def lose(self, attempt: int) -> None:
        self.add(
            "fault_receipt",
            fault_id=f"kill-{attempt}",
            landed="landed",
            evidence={"exit_code": 137},
            took_effect_ns=self.now_ns,
            lost_lease_id=f"main-{attempt}",
        )
        self.event("LEASE_EXPIRED", attempt)
        self.event("TASK_REQUEUED", attempt)

    def end(self, attempt: int, resumed_from: int | None) -> None:
        for role, number, resumed in (("main", attempt, resumed_from), ("reference", 1, None)):
            output = {"key": f"{role}/output", "sha256": "d" * 64}
            self.event("TASK_COMMIT_ACCEPTED", number, role, outputs=[output])
            self.event("JOB_SUCCEEDED", number, role)
            task = {
                "job_id": f"job-{role}",
                "task_id": f"task-{role}",
                "state": "COMPLETED",
                "lease_id": f"{role}-{number}",
                "resumed_from": resumed,
            }
            self.add(
                "job_final",
                role=role,
                job={"state": "SUCCEEDED"},
                tasks=[task],
                artifacts=[{**output, "bytes_sha256": output["sha256"]}],
                metrics={"weights_sha256": "w", "sample_chain": "c", "samples_seen": 9},
            )
        self.add("collected", silent=[])
        self.add("checkpoints", role="main", when="end", checkpoints=[], lineage=self.lineage)
        self.add("healed", failures=[], unsteady=[], checked=True)
        names = ("containers", "networks", "volumes", "toxics", "paused", "chains")
        clean: dict[str, Any] = {name: [] for name in names}
        self.add("audit", kept=False, **clean)
        log = {"lines": 9, "numbered": 8, "processes": 1, "gaps": []}
        self.add("logs", coordinator=log)
        self.add("end", end="completed", reason=None)


def tell(shape: Shape) -> Story:
    """Return the story of a system that does everything right."""
    story = Story(shape)
    kills = [f"kill-{number}" for number in range(1, len(shape.losses) + 1)]
    schedule = [
        {"fault_id": name, "kind": "kill", "target": "holder of main"}
        for name in [*kills, *(["flip"] if shape.flip else [])]
    ]
    story.add("plan", experiment="e", seed=1, schedule=schedule, invariants=list(NAMES))
    for role in ("main", "reference"):
        story.add("job_submitted", role=role, job_id=f"job-{role}", lease_s=3.0)
    story.event("LEASE_CLAIMED", 1, "reference")
    chain: list[dict[str, Any]] = []
    step = 0
    for attempt, (saves, returns) in enumerate(shape.losses, start=1):
        story.begin(attempt, chain[-1] if chain else None)
        for _ in range(saves):
            step += 10
            story.save(attempt, step)
            chain.append(story.steps[-1])
        story.lose(attempt)
        if shape.flip and attempt == len(shape.losses) and len(chain) > 1:
            flip_newest(story, chain)
        if returns and attempt > 1:
            haunt(story, attempt - 1, step + 1000)
    last = len(shape.losses) + 1
    newest = chain[-1] if chain else None
    story.begin(last, newest)
    story.end(last, newest["step"] if newest else None)
    return story


def flip_newest(story: Story, chain: list[dict[str, Any]]) -> None:
    victim = chain.pop()
    evidence = {"step": victim["step"], "before_sha256": "x", "after_sha256": "y"}
    story.add(
        "fault_receipt",
        fault_id="flip",
        landed="landed",
        evidence=evidence,
        took_effect_ns=story.now_ns,
        lost_lease_id=None,
    )


def haunt(story: Story, attempt: int, step: int) -> None:
    """Let a superseded attempt come back: refused, and its late checkpoint does not count."""
    story.event("LEASE_REFUSED", attempt, call="heartbeat")
    story.save(attempt, step)
    story.event("TASK_COMMIT_REJECTED", attempt, call="complete")


SHAPES = st.builds(
    Shape,
    st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=4),
)
WITH_LOSS = SHAPES.filter(lambda shape: bool(shape.losses))


def verdict_of(name: str, story: Story) -> Verdict:
    (finding,) = judge(History(story.records), [INVARIANTS[name]]).findings
    return finding.verdict


def change(story: Story, kind: str, **changes: Any) -> None:
    """Overwrite fields of every record of a kind."""
    story.records = [
        dataclasses.replace(record, data={**record.data, **changes})
        if record.kind == kind
        else record
        for record in story.records
    ]


def drop_events(story: Story, *types: str) -> None:
    story.records = [
        record
        for record in story.records
        if record.kind != "event" or record.data["type"] not in types
    ]


@given(SHAPES)
def test_a_good_history_is_valid_for_every_judge(shape: Shape) -> None:
    judgement = judge(History(tell(shape).records), list(INVARIANTS.values()))
    assert [f for f in judgement.findings if f.verdict is not Verdict.VALID] == []
    assert judgement.verdict is Verdict.VALID


@given(st.integers(2, 3))
def test_resuming_from_the_older_checkpoint_after_a_flip_is_valid(saves: int) -> None:
    story = tell(Shape([(saves, False)], flip=True))
    judgement = judge(History(story.records), list(INVARIANTS.values()))
    assert judgement.verdict is Verdict.VALID, judgement.findings


@given(SHAPES, st.randoms(use_true_random=False))
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_records_that_are_missing_never_crash_a_judge(shape: Shape, chance: random.Random) -> None:
    story = tell(shape)
    records = [r for r in story.records if r.kind == "plan" or chance.random() < 0.7]
    for finding in judge(History(records), list(INVARIANTS.values())).findings:
        assert "crashed" not in finding.detail


@pytest.mark.parametrize("name", NAMES)
def test_a_history_without_its_end_is_not_valid(name: str) -> None:
    story = Story(Shape([]))
    story.add("plan", experiment="e", seed=1, schedule=[{"fault_id": "a"}], invariants=[])
    if name not in {"detection_bound", "recovery_bound"}:
        assert verdict_of(name, story) is Verdict.UNKNOWN
    assert judge(History(story.records), [INVARIANTS[name]]).verdict is Verdict.UNKNOWN


@given(SHAPES)
def test_a_second_accepted_result_is_found(shape: Shape) -> None:
    story = tell(shape)
    story.event("TASK_COMMIT_ACCEPTED", 1, outputs=[])
    assert verdict_of("one_accepted_result", story) is Verdict.VIOLATED


@given(SHAPES)
def test_a_completed_task_without_an_accepted_result_is_found(shape: Shape) -> None:
    story = tell(shape)
    drop_events(story, "TASK_COMMIT_ACCEPTED")
    assert verdict_of("one_accepted_result", story) is Verdict.VIOLATED


def test_events_that_break_off_are_no_proof_of_anything() -> None:
    """The coordinator gave no answer any more: nothing is valid, and nothing is violated."""
    story = tell(Shape([(1, False)]))
    drop_events(story, "TASK_COMMIT_ACCEPTED", "JOB_SUCCEEDED")
    assert verdict_of("one_accepted_result", story) is Verdict.UNKNOWN
    assert verdict_of("history_complete", story) is Verdict.UNKNOWN


def test_a_last_look_without_an_answer_makes_the_history_incomplete() -> None:
    story = tell(Shape([(1, False)]))
    change(story, "collected", silent=["events"])
    assert verdict_of("history_complete", story) is Verdict.UNKNOWN


@pytest.mark.parametrize("name", ["detection_bound", "recovery_bound"])
def test_a_lost_holder_that_cannot_be_measured_is_unknown(name: str) -> None:
    story = tell(Shape([(1, False)]))
    change(story, "fault_receipt", took_effect_ns=None)
    assert verdict_of(name, story) is Verdict.UNKNOWN


def test_a_reference_that_was_disturbed_is_none() -> None:
    """Resumed like the other job, it may be wrong in the same way."""
    story = tell(Shape([(1, False)]))
    story.event("LEASE_CLAIMED", 2, "reference")
    assert verdict_of("same_as_reference", story) is Verdict.UNKNOWN


@given(WITH_LOSS, st.sampled_from(["LEASE_RENEWED", "TASK_COMMIT_ACCEPTED", "TASK_ATTEMPT_FAILED"]))
def test_a_fenced_holder_that_changes_something_is_found(shape: Shape, kind: str) -> None:
    story = tell(shape)
    story.event(kind, 1)
    assert verdict_of("fenced_holder", story) is Verdict.VIOLATED


def test_a_lapsed_lease_that_is_revived_before_another_claim_is_no_violation() -> None:
    story = Story(Shape([]))
    story.add("plan", experiment="e", seed=1, schedule=[], invariants=[])
    for kind in ("LEASE_CLAIMED", "LEASE_EXPIRED", "TASK_REQUEUED", "LEASE_RENEWED"):
        story.event(kind, 1)
    assert verdict_of("fenced_holder", story) is Verdict.VALID
    assert verdict_of("one_live_lease", story) is Verdict.VALID


@given(WITH_LOSS)
def test_a_claim_while_another_lease_is_live_is_found(shape: Shape) -> None:
    story = tell(shape)
    drop_events(story, "LEASE_EXPIRED", "TASK_REQUEUED")
    assert verdict_of("one_live_lease", story) is Verdict.VIOLATED


@given(WITH_LOSS)
def test_a_repeated_attempt_number_is_found(shape: Shape) -> None:
    story = tell(shape)
    for record in story.records:
        if record.kind == "event":
            record.data["data"]["attempt_number"] = 1  # type: ignore[index]
    assert verdict_of("one_live_lease", story) is Verdict.VIOLATED


@pytest.mark.parametrize("state", ["FAILED", "CANCELLED"])
@pytest.mark.parametrize("task", ["LEASED", "PENDING"])
def test_a_job_that_ended_otherwise_is_found(state: str, task: str) -> None:
    story = tell(Shape([(1, False)]))
    change(story, "job_final", job={"state": state}, tasks=[{"state": task}])
    assert verdict_of("no_task_lost", story) is Verdict.VIOLATED


@pytest.mark.parametrize(
    ("task", "expected"),
    [("LEASED", Verdict.UNKNOWN), ("PENDING", Verdict.VIOLATED), ("FAILED", Verdict.VIOLATED)],
)
def test_a_job_that_has_not_ended_is_lost_only_where_nobody_works(
    task: str, expected: Verdict
) -> None:
    story = tell(Shape([(1, False)]))
    change(story, "job_final", job={"state": "RUNNING"}, tasks=[{"state": task}])
    assert verdict_of("no_task_lost", story) is expected


@pytest.mark.parametrize(
    "artifacts",
    [
        [],
        [{"key": "main/output", "bytes_sha256": "e" * 64}],
        [{"key": "main/output", "bytes_sha256": None}],
    ],
)
def test_accepted_bytes_that_are_gone_or_changed_are_found(artifacts: list[Any]) -> None:
    story = tell(Shape([(1, False)]))
    change(story, "job_final", artifacts=artifacts)
    assert verdict_of("accepted_bytes", story) is Verdict.VIOLATED


@pytest.mark.parametrize("name", ["weights_sha256", "sample_chain", "samples_seen"])
@pytest.mark.parametrize(("value", "verdict"), [("z", Verdict.VIOLATED), (None, Verdict.UNKNOWN)])
def test_a_result_unlike_the_reference_is_found(name: str, value: Any, verdict: Verdict) -> None:
    story = tell(Shape([(1, False)]))
    final = next(record for record in story.records if record.kind == "job_final")
    final.data["metrics"][name] = value  # type: ignore[index, call-overload]
    assert verdict_of("same_as_reference", story) is verdict


def take_over(story: Story, manifest_id: str | None, step: int | None) -> None:
    """Let the last attempt take over something else."""
    story.lineage[-1] |= {"manifest_id": manifest_id, "step": step}
    final = next(r for r in story.records if r.kind == "job_final" and r.data["role"] == "main")
    final.data["tasks"][0]["resumed_from"] = step  # type: ignore[index, call-overload]


@given(SHAPES.filter(lambda shape: sum(saves for saves, _ in shape.losses) > 0))
def test_a_fresh_start_despite_a_valid_checkpoint_is_found(shape: Shape) -> None:
    story = tell(shape)
    take_over(story, None, None)
    assert verdict_of("resume_newest_valid", story) is Verdict.VIOLATED


def test_a_resume_from_an_older_step_than_the_newest_valid_is_found() -> None:
    story = tell(Shape([(3, False)]))
    take_over(story, "m-1-20", 20)
    assert verdict_of("resume_newest_valid", story) is Verdict.VIOLATED


def test_a_resume_from_the_flipped_checkpoint_is_found() -> None:
    story = tell(Shape([(3, False)], flip=True))
    take_over(story, "m-1-30", 30)
    assert verdict_of("resume_newest_valid", story) is Verdict.VIOLATED


def test_a_resume_from_a_zombies_late_checkpoint_is_found() -> None:
    story = tell(Shape([(1, False), (1, True)]))
    take_over(story, "m-1-1020", 1020)
    assert verdict_of("resume_newest_valid", story) is Verdict.VIOLATED


def test_a_resume_from_a_checkpoint_that_nobody_saw_is_unknown() -> None:
    story = tell(Shape([(1, False)]))
    take_over(story, "m-1-999", 999)
    assert verdict_of("resume_newest_valid", story) is Verdict.UNKNOWN


def test_a_task_that_failed_at_its_first_attempt_resumed_from_nothing() -> None:
    story = tell(Shape([]))
    final = next(record for record in story.records if record.kind == "job_final")
    final.data["tasks"][0]["state"] = "FAILED"  # type: ignore[index, call-overload]
    assert verdict_of("resume_newest_valid", story) is Verdict.VALID


def test_a_result_that_lies_about_its_resume_is_found() -> None:
    story = tell(Shape([(2, False)]))
    final = next(record for record in story.records if record.kind == "job_final")
    final.data["tasks"][0]["resumed_from"] = 10  # type: ignore[index, call-overload]
    assert verdict_of("resume_newest_valid", story) is Verdict.VIOLATED


@pytest.mark.parametrize(("name", "late_s"), [("detection_bound", 6), ("recovery_bound", 40)])
def test_a_loss_that_is_noticed_or_repaired_late_is_found(name: str, late_s: int) -> None:
    story = tell(Shape([(1, False)]))
    receipt = next(record for record in story.records if record.kind == "fault_receipt")
    change(story, "fault_receipt", took_effect_ns=receipt.t_ns - late_s * S)
    assert verdict_of(name, story) is Verdict.VIOLATED


def test_a_dead_holder_that_only_its_lease_tells_of_is_found() -> None:
    """Its session ended with its process, and that was not noticed."""
    story = tell(Shape([(1, False)]))
    for record in story.records:
        if record.kind == "event" and record.data["type"] == "LEASE_EXPIRED":
            record.data["data"]["reason"] = "deadline_passed"  # type: ignore[index]
            expired_ns = int(str(record.data["mono_ns"]))
    assert verdict_of("detection_bound", story) is Verdict.VIOLATED
    kept = next(record for record in story.records if record.kind == "fault_receipt").data
    change(story, "fault_receipt", took_effect_ns=expired_ns - int(0.8 * S))
    assert verdict_of("detection_bound", story) is Verdict.VALID, "the lease ended first"
    change(story, "fault_receipt", took_effect_ns=kept["took_effect_ns"], evidence={})
    assert verdict_of("detection_bound", story) is Verdict.VALID


@pytest.mark.parametrize("name", ["detection_bound", "recovery_bound"])
def test_times_of_another_boot_are_never_compared(name: str) -> None:
    story = tell(Shape([(1, False)]))
    story.records = [
        dataclasses.replace(record, boot_id="other") if record.kind == "fault_receipt" else record
        for record in story.records
    ]
    assert verdict_of(name, story) is Verdict.UNKNOWN


@pytest.mark.parametrize("landed", ["missed", "inconclusive"])
def test_a_fault_that_did_not_land_makes_the_run_unknown(landed: str) -> None:
    story = tell(Shape([(1, False)]))
    change(story, "fault_receipt", landed=landed)
    judgement = judge(History(story.records), list(INVARIANTS.values()))
    assert judgement.verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    "name", ["containers", "networks", "volumes", "toxics", "paused", "chains"]
)
def test_whatever_is_left_on_the_machine_is_found(name: str) -> None:
    story = tell(Shape([]))
    change(story, "audit", **{name: ["something"]})
    assert verdict_of("machine_clean", story) is Verdict.VIOLATED
    assert judge(History(story.records), []).clean[name] == 1


def test_a_system_that_is_not_steady_again_is_found() -> None:
    story = tell(Shape([]))
    change(story, "healed", unsteady=["worker-1 is missing"])
    assert verdict_of("steady_again", story) is Verdict.VIOLATED


DAMAGED = {"evidence": {"corrupted": [{"step": 20, "manifest_id": "m-20"}]}}
REJECTED = (
    '{"event": "checkpoint_rejected", "step": 20, "part": "state-3.bin", '
    '"reason": "state-3.bin does not hash to the sha256 in the manifest"}'
)
OLDER = '{"event": "resumed", "step": 10, "manifest_id": "m-10"}'
NEWER = '{"event": "resumed", "step": 20, "manifest_id": "m-20"}'


@pytest.mark.parametrize(
    ("log", "verdict"),
    [
        (f"a word\n{REJECTED}\n{OLDER}\n", Verdict.VALID),
        (OLDER, Verdict.VIOLATED),
        (f"{REJECTED}\n{NEWER}", Verdict.VIOLATED),
        (REJECTED, Verdict.UNKNOWN),
        (None, Verdict.UNKNOWN),
    ],
)
def test_a_damaged_checkpoint_is_passed_over_for_a_recorded_reason(
    log: str | None, verdict: Verdict
) -> None:
    story = tell(Shape([(2, False)]))
    story.add("fault_receipt", fault_id="flip", landed="landed", **DAMAGED)
    change(story, "job_final", logs=log)
    assert judged("rejection_recorded", story) is verdict


def test_what_was_refused_and_taken_instead_is_told_in_one_sentence() -> None:
    story = tell(Shape([(2, False)]))
    story.add("fault_receipt", fault_id="flip", landed="landed", **DAMAGED)
    change(story, "job_final", logs=f"{REJECTED}\n{OLDER}\n")
    (finding,) = findings("rejection_recorded", story)
    told = "step 20 refused (hash mismatch in state-3.bin); resumed from step 10"
    assert finding.detail == told


def test_what_holds_is_told_with_the_reason_why_that_is_good() -> None:
    (one,) = findings("one_live_lease", tell(Shape([])))
    assert one.detail.endswith("never two live at once, attempt numbers only rose")
    (none,) = findings("detection_bound", tell(Shape([])))
    assert none.detail == "no holder was lost, so there was nothing to measure"


def test_every_invariant_states_what_it_means_in_one_sentence() -> None:
    for invariant in INVARIANTS.values():
        assert invariant.meaning.endswith((".", ":")), invariant.name
        assert len(invariant.meaning) < 100


@pytest.mark.parametrize(("number", "told"), [(0, "0 claims"), (1, "1 claim"), (2, "2 claims")])
def test_nouns_follow_their_number(number: int, told: str) -> None:
    assert counted(number, "claim") == told


def test_without_damage_there_is_nothing_to_reject() -> None:
    assert judged("rejection_recorded", tell(Shape([]))) is Verdict.UNKNOWN


def judged(name: str, story: Story) -> Verdict:
    (finding,) = findings(name, story)
    return finding.verdict


def findings(name: str, story: Story) -> tuple[Finding, ...]:
    return judge(History(story.records), registry.invariants([name])).findings


def test_a_task_that_has_not_ended_does_not_lie_about_its_resume() -> None:
    story = tell(Shape([(2, False)]))
    for record in story.records:
        if record.kind == "job_final" and record.data["role"] == "main":
            record.data["tasks"][0].update(state="LEASED", resumed_from=None)
    assert verdict_of("resume_newest_valid", story) is Verdict.UNKNOWN
