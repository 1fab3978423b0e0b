"""Following a job whose coordinator does not answer, or that nobody works at."""

from datetime import UTC, datetime
from itertools import count
from typing import Any, cast

import pytest

from flashruntime.cli import watch
from flashruntime.client import CoordinatorClient
from flashruntime.errors import CoordinatorUnreachable
from flashruntime.protocol.events import EventPage
from flashruntime.protocol.jobs import JobRecord, JobSpec, JobState
from flashruntime.protocol.nodes import NodeRecord

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SPEC = JobSpec.model_validate(
    {
        "apiVersion": "flashml.dev/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "j"},
        "spec": {"workload": {"type": "command", "parameters": {"command": ["true"]}}},
    }
)


class Silent:
    """Takes fifty seconds for not answering."""

    def __init__(self) -> None:
        self.calls = 0

    def events(self, *_: object, **__: object) -> object:
        self.calls += 1
        raise CoordinatorUnreachable


def test_the_time_that_unanswered_calls_take_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    client, clock_s = Silent(), count(0, 50)
    monkeypatch.setattr(watch.time, "monotonic", lambda: float(next(clock_s)))
    monkeypatch.setattr(watch, "POLL_S", 0.0)
    with pytest.raises(CoordinatorUnreachable):
        watch.follow(cast(CoordinatorClient, client), "job-1")
    assert client.calls == 3


class Waiting:
    """A job that waits for `polls` looks and then is cancelled, and the nodes that are known."""

    base_url = "http://coordinator"

    def __init__(self, polls: int, node_status: str | None, **tasks: int) -> None:
        self.polls = polls
        self.tasks_by_state = tasks
        self.node_status = node_status
        self.waiting_for: str | None = None

    def events(self, *_: object, **__: object) -> EventPage:
        return EventPage(items=[], last_id=0)

    def job(self, job_id: str) -> JobRecord:
        self.polls -= 1
        state = JobState.RUNNING if self.polls > 0 else JobState.CANCELLED
        counts = self.tasks_by_state if self.polls > 0 else {"CANCELLED": 1}
        known: dict[str, Any] = {"job_id": job_id, "name": "j", "created_at": NOW, "spec": SPEC}
        return JobRecord(**known, state=state, tasks=counts, waiting_for=self.waiting_for)

    def nodes(self) -> list[NodeRecord]:
        if self.node_status is None:
            return []
        fields: dict[str, Any] = {"node_id": "n", "session_id": "s", "registered_at": NOW}
        return [NodeRecord(**fields, idle_s=0, status=self.node_status)]

    def tasks(self, _: str) -> list[object]:
        return []

    def logs(self, *_: object) -> str:
        return ""


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at the clock takes a second."""
    clock_s = count()
    monkeypatch.setattr(watch.time, "monotonic", lambda: float(next(clock_s)))
    monkeypatch.setattr(watch, "POLL_S", 0.0)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("node_status", [None, "lost"])
def test_tasks_that_no_worker_can_take_are_told_once(
    node_status: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    client = Waiting(20, node_status, PENDING=2)
    assert watch.follow(cast(CoordinatorClient, client), "job-1") == 1
    told = capsys.readouterr().err
    assert told.count("no worker is registered with http://coordinator; start one: make up") == 1


@pytest.mark.usefixtures("quick")
def test_what_tasks_ask_for_in_vain_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    client = Waiting(20, "live", PENDING=2)
    client.waiting_for = "no node offers accelerators=8"
    assert watch.follow(cast(CoordinatorClient, client), "job-1") == 1
    assert capsys.readouterr().err == "flashruntime submit: note: no node offers accelerators=8\n"


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    "client",
    [
        Waiting(20, "live", PENDING=2),
        Waiting(20, None, PENDING=2, LEASED=1),
        Waiting(20, None, COMPLETED=2),
        Waiting(2, None, PENDING=2),
    ],
)
def test_nothing_is_told_while_tasks_are_or_may_soon_be_taken(
    client: Waiting, capsys: pytest.CaptureFixture[str]
) -> None:
    watch.follow(cast(CoordinatorClient, client), "job-1")
    assert capsys.readouterr().err == ""


def test_ctrl_c_says_that_the_job_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    class Interrupted(Waiting):
        def job(self, job_id: str) -> JobRecord:
            raise KeyboardInterrupt

    client = cast(CoordinatorClient, Interrupted(1, None))
    assert watch.follow(client, "job-1") == 1
    told = capsys.readouterr().err
    assert "the job goes on: flashruntime status job-1 --coordinator http://coordinator" in told
    assert "| flashruntime cancel job-1 --coordinator http://coordinator" in told
