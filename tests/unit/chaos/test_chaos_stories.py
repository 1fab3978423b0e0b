"""Histories that obey every rule by construction are valid; each rule broken is found, alone."""

import json
import random
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos import cli, registry
from chaos.history import History, Record, digest
from chaos.judge import STANDING, judge
from chaos.model import Verdict
from chaos.runner import judge_folder
from chaos.testing.story import SCRIPT, Fate, Story

NAMES = (*STANDING, "resume_newest_valid", "same_as_reference", "typed_as_injected")
INVARIANTS = {each.name: each for each in registry.invariants((*NAMES, "rejection_recorded"))}
SECOND_NS = 1_000_000_000
Records = list[Record]


@st.composite
def stories(draw: st.DrawFn) -> Story:
    fates = st.lists(st.sampled_from([*Fate]), max_size=3)
    jobs = draw(st.dictionaries(st.sampled_from(["main", "second"]), fates, max_size=2))
    chance = random.Random(draw(st.integers(0, 1000)))
    return Story(chance, {"main": [], **jobs}, draw(st.integers(0, 2)))


@st.composite
def eventful(draw: st.DrawFn) -> Records:
    """A holder is killed with two checkpoints, the newest of which rots, and then a zombie."""
    chance = random.Random(draw(st.integers(0, 1000)))
    fates = [Fate.ROTTEN, Fate.ZOMBIE, draw(st.sampled_from([*Fate]))]
    return Story(chance, {"main": fates, "second": [Fate.CRASHED]}, 1).records


def judged(records: Records, *names: str) -> dict[str, Verdict]:
    chosen = [INVARIANTS[name] for name in names or NAMES]
    found = judge(History(records), chosen).findings
    return {each.name: each.verdict for each in found if each.name in INVARIANTS}


@given(stories())
@settings(max_examples=25, deadline=None)
def test_a_history_of_a_system_that_obeys_every_rule_is_valid(story: Story) -> None:
    """typed_as_injected has nothing to say where no fault that landed expects anything."""
    found = judge(History(story.records), [INVARIANTS[name] for name in NAMES[:-1]]).findings
    assert [each for each in found if each.verdict is not Verdict.VALID] == []


@given(eventful())
@settings(max_examples=8, deadline=None)
def test_a_damaged_checkpoint_and_every_failure_are_judged_too(records: Records) -> None:
    assert judged(records, "typed_as_injected") == {"typed_as_injected": Verdict.VALID}


def of(records: Records, kind: str, role: str = "main") -> Record:
    """Return the last record of a kind, of this role where it names one."""
    return next(r for r in reversed(records) if r.kind == kind and r.data.get("role", role) == role)


def events(records: Records, kind: str, role: str = "main") -> Records:
    name = f"job-{role}"
    found = [record for record in records if record.kind == "event"]
    return [r for r in found if r.data["type"] == kind and r.data["job_id"] == name]


def put(records: Records, old: Record, **data: Any) -> None:
    records[records.index(old)] = replace(old, data={**old.data, **data})


def retell(records: Records, event: Record, **data: Any) -> None:
    """Change what an event says beside its type."""
    told: Any = event.data["data"]
    put(records, event, data={**told, **data})


def insert(records: Records, after: Record, lease_id: Any, kind: str) -> None:
    """Let the coordinator have one more event, at the moment of another one."""
    event = replace(after, data={**after.data, "type": kind, "lease_id": lease_id})
    records.insert(records.index(after) + 1, event)


def sealed(records: Records) -> Records:
    """Number events and records anew, so that nothing but the rule in question is broken."""
    done: Records = []
    for record in records:
        number = 1 + sum(each.kind == "event" for each in done)
        data = {**record.data, "id": number} if record.kind == "event" else record.data
        done.append(replace(record, seq=len(done), data=data))
    told: Any = {str(r.data["id"]): digest(r.data) for r in done if r.kind == "event"}
    return [
        replace(r, data={"digests": told}) if r.kind == "events_again" and told else r for r in done
    ]


def accept_twice(records: Records) -> None:
    (accepted,) = events(records, "TASK_COMMIT_ACCEPTED")
    insert(records, accepted, accepted.data["lease_id"], "TASK_COMMIT_ACCEPTED")


def overlap(records: Records) -> None:
    for kind in ("LEASE_EXPIRED", "TASK_REQUEUED"):
        records.remove(events(records, kind)[0])


def repeat_number(records: Records) -> None:
    retell(records, events(records, "LEASE_CLAIMED")[1], attempt_number=1)


def write_stale(records: Records) -> None:
    first, *_, last = events(records, "LEASE_CLAIMED")
    insert(records, last, first.data["lease_id"], "CHECKPOINT_MANIFEST_COMMITTED")


def refuse_holder(records: Records) -> None:
    claim = events(records, "LEASE_CLAIMED")[-1]
    insert(records, claim, claim.data["lease_id"], "LEASE_REFUSED")


def lose_task(records: Records) -> None:
    put(records, of(records, "job_final"), job={"state": "FAILED"})


def forget_result(records: Records) -> None:
    records.remove(events(records, "TASK_COMMIT_ACCEPTED")[0])


def invent_claim(records: Records) -> None:
    said = of(records, "said")
    lines: Any = said.data["worker-1"]
    line = {"event": "lease_claimed", "lease_id": "x", "task_id": "task-main", "mono_ns": 1}
    put(records, said, **{"worker-1": [*lines, line]})


def forget_and_do_again(records: Records) -> None:
    """A worker was told that its result is accepted; the ledger forgot, and another has it."""
    accepted = events(records, "TASK_COMMIT_ACCEPTED")[0]
    held: Any = accepted.data
    for lease_id, kind in (
        ("again", "TASK_COMMIT_ACCEPTED"),
        ("again", "LEASE_CLAIMED"),
        (held["lease_id"], "TASK_REQUEUED"),
        (held["lease_id"], "LEASE_EXPIRED"),
    ):
        insert(records, accepted, lease_id, kind)
    again = events(records, "LEASE_CLAIMED")[-1]
    retell(records, again, attempt_number=held["data"]["attempt_number"] + 1)
    records.remove(accepted)


def refuse_a_beat(records: Records) -> None:
    """The coordinator's log has a refusal of a lease that holds."""
    said, claim = of(records, "said"), events(records, "LEASE_CLAIMED")[0].data
    lines: Any = said.data["coordinator"]
    route = "/v1alpha1/attempts/{lease_id}/heartbeat"
    line: Any = {"event": "request", "route": route, "status": 410, "duration_ms": 0.5}
    line |= {"lease_id": claim["lease_id"], "mono_ns": int(str(claim["mono_ns"])) + 2_000_000}
    put(records, said, coordinator=[*lines, line])


def resume_older(records: Records) -> None:
    for record in [r for r in records if r.kind == "checkpoints" and r.data["role"] == "main"]:
        links: Any = record.data["lineage"]
        last = {**links[-1], "manifest_id": None, "step": None}
        put(records, record, lineage=[*links[:-1], last])


def regress(records: Records) -> None:
    view = of(records, "task")
    task: Any = view.data["task"]
    records.insert(records.index(view) + 1, replace(view, data={**view.data, "task": task}))
    put(records, view, task={**task, "step": task["step"] + 1})


def metrics(**changed: Any) -> Callable[[Records], None]:
    def change(records: Records) -> None:
        final = of(records, "job_final")
        found: Any = final.data["metrics"]
        put(records, final, metrics={**found, **changed})

    return change


def see_twice(records: Records) -> None:
    failed = events(records, "TASK_ATTEMPT_FAILED")[0]
    retell(records, failed, evidence={"log_tail": "step 3: sample 7 was seen twice"})


def load_damaged(records: Records) -> None:
    """A checkpoint that was found damaged is taken over all the same."""
    links: Any = of(records, "checkpoints").data["lineage"]
    taken = next(link for link in reversed(links) if link["manifest_id"])
    claims = events(records, "LEASE_CLAIMED")
    claim = next(each for each in claims if each.data["lease_id"] == taken["attempt_id"])
    found: Any = {"step": taken["step"], "state": "corrupt", "manifest_id": taken["manifest_id"]}
    found["attempt_id"] = links[0]["attempt_id"]
    data: Any = {"role": "main", "when": "disturbed", "checkpoints": [found], "lineage": links}
    early = replace(claim, kind="checkpoints", data=data, t_ns=int(str(claim.data["mono_ns"])) - 1)
    records.insert(records.index(claim), early)


def rot_artifact(records: Records) -> None:
    found = {"key": "main/metrics.json", "bytes_sha256": "e" * 64}
    put(records, of(records, "job_final"), artifacts=[found])


def earlier_by(seconds: int) -> Callable[[Records], None]:
    """Let a fault have taken effect long before anybody noticed."""

    def change(records: Records) -> None:
        receipt = next(r for r in records if r.data.get("lost_lease_id"))
        at_ns = int(str(receipt.data["took_effect_ns"])) - seconds * SECOND_NS
        put(records, receipt, took_effect_ns=at_ns)

    return change


def call_wrongly(records: Records) -> None:
    retell(records, events(records, "FAILURE_CLASSIFIED")[0], failure_class="application_error")


def leave_orphan(records: Records) -> None:
    commands = ["flashruntime work", f"python3 /attempts/1/{SCRIPT} --steps 40"]
    containers = [{"service": "worker-1", "commands": commands}]
    put(records, of(records, "processes"), containers=containers)


def leave_container(records: Records) -> None:
    put(records, of(records, "audit"), containers=["worker-1"])


def stay_unsteady(records: Records) -> None:
    put(records, of(records, "healed"), unsteady=["worker-1 is not connected"])


BROKEN: dict[str, tuple[Callable[[Records], None], set[str]]] = {
    "a result is accepted twice": (accept_twice, {"one_accepted_result"}),
    "two leases overlap": (overlap, {"one_live_lease", "lease_linearizable"}),
    "an attempt number comes twice": (repeat_number, {"one_live_lease", "lease_linearizable"}),
    "a fenced holder writes": (write_stale, {"fenced_holder"}),
    "a holder is refused": (refuse_holder, {"lease_linearizable"}),
    "a task is lost": (lose_task, {"no_task_lost"}),
    "an answered result is gone": (forget_result, {"one_accepted_result", "answers_kept"}),
    "a claim was answered and is not there": (invent_claim, {"answers_kept"}),
    "an answered result is done again": (
        forget_and_do_again,
        {"answers_kept", "lease_linearizable"},
    ),
    "a beat of a holder is refused": (refuse_a_beat, {"lease_linearizable"}),
    "an older checkpoint is taken over": (resume_older, {"resume_newest_valid"}),
    "steps go back": (regress, {"steps_never_regress"}),
    "a sample is repeated": (metrics(sample_chain="d"), {"samples_once", "same_as_reference"}),
    "steps are left out": (metrics(executed_steps_this_attempt=1), {"samples_once"}),
    "a payload counts a sample twice": (see_twice, {"samples_once"}),
    "weights differ": (metrics(weights_sha256="v"), {"same_as_reference"}),
    "damaged bytes are loaded": (load_damaged, {"loaded_bytes", "resume_newest_valid"}),
    "an accepted artifact rots": (rot_artifact, {"accepted_bytes"}),
    "a loss is noticed late": (earlier_by(10), {"detection_bound"}),
    "work goes on late": (earlier_by(90), {"detection_bound", "recovery_bound"}),
    "a failure is called wrongly": (call_wrongly, {"typed_as_injected"}),
    "a process outlives its job": (leave_orphan, {"no_orphan_process"}),
    "a container is left": (leave_container, {"machine_clean"}),
    "the system is not steady again": (stay_unsteady, {"steady_again"}),
}


@pytest.mark.parametrize("name", BROKEN)
@given(records=eventful())
@settings(max_examples=2, deadline=None)
def test_a_rule_that_is_broken_is_found_by_its_judge_and_by_no_other(
    name: str, records: Records
) -> None:
    break_it, expected = BROKEN[name]
    broken = list(records)
    break_it(broken)
    found = judged(sealed(broken))
    assert {each for each, said in found.items() if said is Verdict.VIOLATED} == expected


@pytest.mark.parametrize("change", ["gone", "other"])
@given(records=eventful())
@settings(max_examples=2, deadline=None)
def test_an_event_that_a_restart_lost_or_changed_is_found(change: str, records: Records) -> None:
    broken = list(records)
    again = of(broken, "events_again")
    told: Any = again.data["digests"]
    others = {number: said for number, said in told.items() if number != "3"}
    put(broken, again, digests=others if change == "gone" else {**told, "3": "0"})
    found = judged(broken)
    assert [each for each, said in found.items() if said is Verdict.VIOLATED] == [
        "coordinator_keeps"
    ]


TAKEN_AWAY = {
    "said": ["answers_kept", "coordinator_keeps", "lease_linearizable"],
    "events_again": ["coordinator_keeps"],
    "processes": ["no_orphan_process"],
    "checkpoints": ["loaded_bytes", "resume_newest_valid"],
    "job_final": ["samples_once", "same_as_reference", "no_task_lost", "one_accepted_result"],
    "event": [
        "answers_kept",
        "coordinator_keeps",
        "lease_linearizable",
        "none_starved",
        "one_live_lease",
        "fenced_holder",
    ],
    "fault_receipt": ["faults_landed", "typed_as_injected"],
    "healed": ["steady_again"],
    "audit": ["machine_clean"],
    "logs": ["logs_complete"],
}


@pytest.mark.parametrize("kind", TAKEN_AWAY)
@given(records=eventful())
@settings(max_examples=2, deadline=None)
def test_where_data_is_taken_away_a_judge_does_not_know(kind: str, records: Records) -> None:
    left = [record for record in records if record.kind != kind]
    found = judged(left, *TAKEN_AWAY[kind])
    assert found == dict.fromkeys(TAKEN_AWAY[kind], Verdict.UNKNOWN)


def test_without_any_step_the_judge_of_steps_does_not_know() -> None:
    records = Story(random.Random(1), {"main": []}).records
    left = [record for record in records if record.kind not in {"task", "job_final"}]
    assert judged(left, "steps_never_regress") == {"steps_never_regress": Verdict.UNKNOWN}


@given(stories(), st.randoms(use_true_random=False))
@settings(max_examples=15, deadline=None)
def test_records_that_are_missing_never_crash_a_judge(story: Story, chance: random.Random) -> None:
    records = [r for r in story.records if r.kind == "plan" or chance.random() < 0.8]
    for finding in judge(History(records), list(INVARIANTS.values())).findings:
        assert "crashed" not in finding.detail


@given(eventful(), st.sampled_from(["good", *BROKEN]))
@settings(max_examples=8, deadline=None)
def test_a_saved_history_is_judged_the_same_again(records: Records, name: str) -> None:
    broken = list(records)
    if name != "good":
        BROKEN[name][0](broken)
    broken = sealed(broken)
    with TemporaryDirectory() as place:
        folder = Path(place)
        lines = [json.dumps(asdict(record)) + "\n" for record in broken]
        (folder / "history.jsonl").write_text("".join(lines))
        first, again = judge_folder(folder), judge_folder(folder)
        now = judge(History(broken), registry.invariants(STANDING))
        assert first.to_json() == again.to_json() == now.to_json()
        codes = {Verdict.VALID: 0, Verdict.VIOLATED: 1, Verdict.UNKNOWN: 3}
        assert cli.main(["check", place, "--json"]) == codes[now.verdict]


def wait_of(task: str, began_s: int, claimed_s: int) -> list[tuple[str, str, int]]:
    return [("TASK_CREATED", task, began_s), ("LEASE_CLAIMED", task, claimed_s)]


@pytest.mark.parametrize(
    ("waited_s", "later", "expected"),
    [
        (60, 4, Verdict.VIOLATED),
        (60, 3, Verdict.VALID),
        (20, 4, Verdict.VALID),
        (60, 0, Verdict.VALID),
    ],
)
def test_a_task_that_later_ones_pass_by_is_starved(
    waited_s: int, later: int, expected: Verdict
) -> None:
    """A wait that passes nobody by is no starvation: every worker may be down."""
    told = wait_of("first", 0, waited_s)
    for number in range(later):
        told += wait_of(f"later-{number}", 1 + number, 2 + number)
    data: list[Any] = [
        {"id": n, "type": kind, "task_id": task, "mono_ns": at * SECOND_NS, "boot_id": "b"}
        for n, (kind, task, at) in enumerate(sorted(told, key=lambda each: each[2]), start=1)
    ]
    plan: Any = {"experiment": "e", "seed": 1, "schedule": [], "workers": 2}
    records = [Record(0, 0, "b", "2026", "test", "plan", plan)]
    records += [Record(n, n, "b", "2026", "test", "event", each) for n, each in enumerate(data, 1)]
    assert judged(records, "none_starved") == {"none_starved": expected}


def test_every_invariant_states_what_it_means_in_one_sentence() -> None:
    for invariant in INVARIANTS.values():
        assert invariant.meaning.endswith("."), invariant.name
        assert len(invariant.meaning) < 100
