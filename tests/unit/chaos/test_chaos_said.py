"""What logs say that a judge needs, and the last looks of a run."""

import json
from pathlib import Path
from typing import Any

from chaos.collect import collect
from chaos.history import History, HistoryWriter, digest
from chaos.model import CannotRun, JobRequest, JsonMap
from chaos.observe import Observer
from chaos.ports import RunSpec, World
from chaos.said import said
from chaos.testing import FakeMachine

JOBS = {"main": JobRequest("main", ("true",))}
HEARTBEAT = "/v1alpha1/attempts/{lease_id}/heartbeat"


def test_answers_refusals_and_starts_are_kept_and_the_rest_is_not(tmp_path: Path) -> None:
    claimed = {"event": "lease_claimed", "mono_ns": 5, "lease_id": "l", "task_id": "t"}
    refused = {"event": "request", "mono_ns": 6, "lease_id": "l", "route": HEARTBEAT, "status": 410}
    ready = {"event": "coordinator_ready", "mono_ns": 1}
    other: list[dict[str, Any]] = [
        {"event": "request", "mono_ns": 7, "route": "/v1alpha1/jobs", "status": 201},
        {"event": "lease_claimed", "lease_id": "no time"},
        {"event": "output_failed", "mono_ns": 8},
    ]
    lines = [json.dumps({**each, "seq": 1}) for each in (claimed, refused, ready, *other)]
    (tmp_path / "worker-1.log").write_text("\n".join(["no JSON", "[1]", *lines]))
    assert said(tmp_path) == {"worker-1": [claimed, refused, ready]}


def test_a_long_reason_is_cut(tmp_path: Path) -> None:
    line = {"event": "attempt_discarded", "mono_ns": 5, "lease_id": "l", "reason": "r" * 999}
    (tmp_path / "worker-1.log").write_text(json.dumps(line))
    found: Any = said(tmp_path)["worker-1"]
    assert [len(kept["reason"]) for kept in found] == [160]


def ended(tmp_path: Path, world: World) -> History:
    with HistoryWriter(tmp_path / "h.jsonl") as history:
        observer = Observer(world.runtime, world.files, history)
        roles = {role: world.runtime.submit(role, request) for role, request in JOBS.items()}
        observer.watch(roles)
        observer.poll()
        collect(world, roles, observer)
    return History.load(tmp_path / "h.jsonl")


def test_in_the_end_every_event_is_asked_for_again(tmp_path: Path) -> None:
    history = ended(tmp_path, FakeMachine().world(RunSpec("run-1", 2)))
    again: Any = history.one("events_again")["digests"]
    heard = {str(event["id"]): digest(event) for event in history.of("event")}
    assert heard.items() <= again.items()


def test_a_look_that_fails_is_noted_and_stops_no_other(tmp_path: Path) -> None:
    machine = FakeMachine()
    world = machine.world(RunSpec("run-1", 2))

    def silent() -> tuple[JsonMap, ...]:
        raise CannotRun("no answer")

    machine.systems["run-1"].events_again = silent  # type: ignore[method-assign]
    history = ended(tmp_path, world)
    assert history.of("events_again") == ()
    assert [record["role"] for record in history.of("job_final")] != []
    assert "no events_again" in [note["text"] for note in history.of("note")]
