"""Judges of what costs nothing and of orphans, against made-up histories, good and bad."""

from typing import Any

import pytest

from chaos import registry
from chaos.history import History, Record
from chaos.judge import judge
from chaos.model import Verdict

S = 1_000_000_000


class Story:
    """A history in the making; each record takes a second."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def add(self, kind: str, /, **data: Any) -> None:
        at_ns = (len(self.records) + 1) * S
        self.records.append(Record(len(self.records), at_ns, "b", "2026", "test", kind, data))

    def event(self, kind: str, lease_id: str, **data: Any) -> None:
        number = len(self.records)
        at = {"mono_ns": (number + 1) * S, "boot_id": "b"}
        ids = {"job_id": "job-main", "task_id": "task", "lease_id": lease_id}
        self.add("event", id=number, type=kind, data=data, **at, **ids)


def verdict(name: str, story: Story) -> tuple[Verdict, str]:
    story.add("end", end="completed", reason=None, log_tails={})
    (found,) = judge(History(story.records), registry.invariants([name])).findings
    return found.verdict, found.detail


def begin(**params: Any) -> Story:
    story = Story()
    schedule = [{"fault_id": "f", "params": {"costs_nothing": True, **params}}]
    jobs = {"main": {"files": {"trial.py": "0" * 64}}}
    story.add("plan", experiment="e", seed=1, schedule=schedule, invariants=[], jobs=jobs)
    story.add("job_submitted", role="main", job_id="job-main", lease_s=3.0)
    story.event("LEASE_CLAIMED", "lease-1", attempt_number=1)
    return story


def hurt(story: Story, landed: str = "landed", **evidence: Any) -> None:
    at_ns = len(story.records) * S + S // 2
    told = {"evidence": evidence, "took_effect_ns": at_ns, "lost_lease_id": None}
    story.add("fault_receipt", fault_id="f", kind="kill", landed=landed, **told)


def test_a_coordinator_that_died_must_not_cost_a_live_lease() -> None:
    good, bad = begin(), begin()
    for story in (good, bad):
        hurt(story)
    good.event("TASK_COMMIT_ACCEPTED", "lease-1")
    bad.event("LEASE_EXPIRED", "lease-1")
    assert verdict("costs_nothing", good)[0] is Verdict.VALID
    found, told = verdict("costs_nothing", bad)
    assert found is Verdict.VIOLATED
    assert "f cost lease-1 its task" in told


def test_what_was_over_or_taken_away_before_is_not_held_against_it() -> None:
    story = begin()
    story.add(
        "fault_receipt",
        fault_id="g",
        kind="kill",
        landed="landed",
        evidence={},
        took_effect_ns=1,
        lost_lease_id="lease-1",
    )
    hurt(story)
    story.event("LEASE_EXPIRED", "lease-1")
    assert verdict("costs_nothing", story)[0] is Verdict.VALID
    ended = begin()
    ended.event("TASK_ATTEMPT_FAILED", "lease-1")
    hurt(ended)
    assert verdict("costs_nothing", ended)[0] is Verdict.VALID


def test_a_fault_at_one_worker_speaks_of_its_attempt_alone() -> None:
    story = begin()
    hurt(story, lease_id="lease-7")
    story.event("LEASE_EXPIRED", "lease-1")
    assert verdict("costs_nothing", story)[0] is Verdict.VALID
    hit = begin()
    hurt(hit, lease_id="lease-1")
    hit.event("TASK_ATTEMPT_FAILED", "lease-1")
    assert verdict("costs_nothing", hit)[0] is Verdict.VIOLATED


def test_without_a_landed_fault_nothing_can_be_said_of_its_cost() -> None:
    story = begin()
    hurt(story, landed="missed")
    assert verdict("costs_nothing", story)[0] is Verdict.UNKNOWN


def ended(commands: list[str] | None, state: str = "SUCCEEDED", **receipt: Any) -> Story:
    story = begin()
    if receipt:
        story.add("fault_receipt", fault_id="f", landed="landed", **receipt)
    story.add("job_final", role="main", job={"state": state}, tasks=[], artifacts=[])
    if commands is not None:
        containers = [{"service": "worker-1", "commands": ["flashruntime work", *commands]}]
        story.add("processes", containers=containers)
    return story


@pytest.mark.parametrize(
    ("story", "expected"),
    [
        (ended([]), Verdict.VALID),
        (ended(["python3 trial.py --steps 3"]), Verdict.VIOLATED),
        (ended(["/opt/venv/bin/python3 -u /attempts/1/files/trial.py"]), Verdict.VIOLATED),
        (ended(["python3 my-trial.py.bak"]), Verdict.VALID),
        (ended(["python3 trial.py"], state="RUNNING"), Verdict.UNKNOWN),
        (ended(None), Verdict.UNKNOWN),
        (
            ended([], kind="kill_agent", evidence={"left": ["python3 trial.py"]}),
            Verdict.VIOLATED,
        ),
        (ended([], kind="kill_agent", evidence={"left": []}), Verdict.VALID),
    ],
    ids=["none", "left", "by-path", "other", "running", "unseen", "agent-left", "agent-clean"],
)
def test_a_process_of_a_job_must_end_with_it(story: Story, expected: Verdict) -> None:
    found, told = verdict("no_orphan_process", story)
    assert found is expected, told


def test_without_a_worker_there_is_nothing_to_look_at() -> None:
    story = ended(None)
    story.add("processes", containers=[])
    assert verdict("no_orphan_process", story)[0] is Verdict.UNKNOWN
