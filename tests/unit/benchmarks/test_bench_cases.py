"""Reported mistakes of benchmark suites: wrong clocks, wrong names, wrong moments."""

import ast
import json
import os
import platform
import time
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

import benchmarks
from benchmarks import detection, runner
from benchmarks import host as hosts
from benchmarks.console import Screen
from benchmarks.runner import Options
from benchmarks.scenario import Bench, Scenario, series
from benchmarks.scenarios import lease_recovery_latency
from benchmarks.schema import Host
from chaos.figures import figures
from chaos.history import History, Record
from flashruntime.protocol.events import Event, EventType

S = 1_000_000_000
Make = Callable[..., Bench]


def test_165_a_run_whose_clock_steps_back_has_no_negative_duration(
    scenario: Callable[..., Scenario], options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    back: Iterator[float] = iter(now - 3_600 * number for number in range(10**6))

    def timed(bench: Bench) -> None:
        monkeypatch.setattr(time, "time", lambda: next(back))
        bench.report([1.0])

    document, _ = runner.run([scenario(timed)], options, Screen(StringIO()))
    durations = [document.wall_s, *(row.wall_s for row in document.rows)]
    assert all(0 <= each < 60 for each in durations)


def test_165_no_measurement_reads_the_time_of_day() -> None:
    """`time.time` is called nowhere, `datetime.now` only for labels."""
    [root] = benchmarks.__path__
    for path in Path(root).rglob("*.py"):
        if "snippets" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                assert (node.value.id, node.attr) != ("time", "time"), path
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
                assert "datetime.now" not in ast.unparse(node), path


@pytest.mark.parametrize("samples", [None, []])
def test_169_nothing_completed_is_null_with_a_reason(bench: Make, samples: Any) -> None:
    here = bench()
    here.report(samples, notes=["recovery did not happen within 60 s"])
    told = json.loads(here.rows[0].model_dump_json(), parse_constant=pytest.fail)
    assert (told["median"], told["p10"], told["p90"]) == (None, None, None)
    assert told["reason"] == "recovery did not happen within 60 s"


@pytest.mark.parametrize("name", ["lab pc/№1 (new)", "", "../..", "机器", "x" * 255])
def test_171_a_file_is_named_by_plain_words_whatever_the_processor_is_called(
    name: str, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "node", lambda: name)
    monkeypatch.setattr(platform, "system", lambda: name)
    found = hosts.slug(host.model_copy(update={"cpu": name or "unknown"}))
    assert found
    assert len(found) <= 80
    assert set(found) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")


def test_173_a_document_tells_where_when_and_of_what_it_was_measured(
    scenario: Callable[..., Scenario], options: Options
) -> None:
    document, _ = runner.run(
        [scenario(lambda bench: bench.report([1.0]))], options, Screen(StringIO())
    )
    told = json.loads(document.model_dump_json())
    about = {
        "cores", "ram_gb", "python", "os", "kernel", "flashruntime", "commit", "gpu", "disk",
        "cpu", "load_1m", "torch", "place",
    }  # fmt: skip
    assert set(told["host"]) == about
    assert told["host"]["cores"] <= len(os.sched_getaffinity(0))
    assert told["started_at"].endswith("Z")
    assert told["command"]


KILLED_NS, CLAIMED_NS = 10 * S, 13 * S + S // 10


def seen(seq: int, at_ns: int, kind: str, **data: Any) -> Record:
    return Record(seq, at_ns, "boot", "2026-01-01T00:00:00+00:00", "controller", kind, data)


def told(number: int, at_ns: int, seen_ns: int, kind: str, lease_id: str) -> Record:
    event = {"id": number, "type": kind, "mono_ns": at_ns, "boot_id": "boot", "job_id": "job-1",
             "task_id": "t", "lease_id": lease_id}  # fmt: skip
    return seen(number, seen_ns, "event", **event)


@pytest.mark.parametrize("poll_s", [0.1, 2.0, 4.0])
def test_175_detection_is_told_by_the_coordinators_events_however_seldom_they_are_read(
    poll_s: float,
) -> None:
    """Killed at 10 s, claimable at 13.1 s; a poller sees that up to four seconds later."""
    polled_ns = KILLED_NS + -(-(CLAIMED_NS - KILLED_NS) // round(poll_s * S)) * round(poll_s * S)
    history = History([
        seen(0, S, "job_submitted", role="main", job_id="job-1", lease_s=3.0),
        told(1, 2 * S, 2 * S, "LEASE_CLAIMED", "a"),
        seen(2, 20 * S, "fault_receipt", fault_id="f", landed="landed",
             took_effect_ns=KILLED_NS, lost_lease_id="a"),
        told(3, CLAIMED_NS, polled_ns, "TASK_REQUEUED", "a"),
        told(4, CLAIMED_NS, polled_ns, "LEASE_CLAIMED", "b"),
    ])  # fmt: skip
    measured = figures(history)
    assert (measured["mttd_s"], measured["reclaim_s"]) == ([3.1], [3.1])


def test_175_a_moment_is_that_of_the_event_itself() -> None:
    kinds = [EventType.LEASE_CLAIMED, EventType.TASK_REQUEUED]
    about = {"job_id": "j", "task_id": "t", "lease_id": "a", "data": {}, "boot_id": "boot"}
    events = [
        Event(id=number, type=kind, at="2026-01-01T00:00:00Z", mono_ns=number * S, **about)
        for number, kind in enumerate(kinds, start=1)
    ]
    assert lease_recovery_latency._at(events, EventType.TASK_REQUEUED, "a") == 2 * S


def test_175_a_row_of_detection_says_between_which_events_it_lies(bench: Make) -> None:
    here = bench()
    figure = series("claimed again", "s", [3.2])
    detection.report(here, [3.1], "the death of the container", [figure], variant="")
    within = here.rows[0].interval
    assert within is not None
    assert (within.start, within.end) == ("the death of the container", detection.CLAIMABLE)
    assert within.resolution_s == 0.0
