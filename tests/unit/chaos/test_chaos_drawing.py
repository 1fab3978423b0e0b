"""The time line's parts: bands, curves, heartbeats; bounded however long the run was."""

import re
from random import Random
from typing import Any

import pytest

from chaos import registry
from chaos.drawing.bands import at_once, bands
from chaos.drawing.canvas import Scale, thinned
from chaos.drawing.curves import heartbeats, losses, steps
from chaos.history import History, Record
from chaos.judge import judge
from chaos.report import html
from chaos.testing.story import Fate, Story
from chaos.timeline import render

SECOND = 1_000_000_000


def told(*entries: tuple[float, str, dict[str, Any]]) -> History:
    return History(
        Record(seq, int(at_s * SECOND), "boot", "2026", "test", kind, data)
        for seq, (at_s, kind, data) in enumerate(entries)
    )


def firing(at_s: float, name: str = "f") -> tuple[float, str, dict[str, Any]]:
    return (at_s, "fault_firing", {"fault_id": name, "kind": "kill"})


def receipt(
    at_s: float, landed: str = "landed", **evidence: Any
) -> tuple[float, str, dict[str, Any]]:
    return (at_s, "fault_receipt", {"fault_id": "f", "landed": landed, "evidence": evidence})


def undo(at_s: float, state: str) -> tuple[float, str, dict[str, Any]]:
    return (at_s, "undo", {"fault_id": "f", "state": state, "action": "start_container"})


@pytest.mark.parametrize(
    ("history", "end_s", "landed"),
    [
        (told(firing(1), receipt(2), undo(5, "done")), 5, "landed"),
        (told(undo(0.5, "promised"), firing(1), undo(2, "early"), receipt(3), undo(9, "done")), 2,
         "landed"),
        (told(firing(1), receipt(2, "missed"), (7, "end", {})), 2, "missed"),
        (told(firing(1), (7, "end", {})), 7, None),
        (told(firing(1), receipt(6, off_ns=4 * SECOND), undo(9, "done")), 4, "landed"),
    ],
    ids=["undone at the end", "undone early", "nothing to undo", "no receipt", "off by itself"],
)  # fmt: skip
def test_a_band_goes_from_firing_to_what_undid_it(
    history: History, end_s: float, landed: str | None
) -> None:
    (band,) = bands(history)
    assert (band.begin_ns, band.end_ns, band.landed) == (SECOND, end_s * SECOND, landed)


def test_a_fault_that_never_fired_has_no_band() -> None:
    assert bands(told(receipt(2, "missed"))) == ()


def test_a_band_is_drawn_over_everything_below_it_in_the_colour_of_its_receipt() -> None:
    for landed in ("landed", "missed"):
        svg = render(told(firing(1), receipt(3, landed), (4, "end", {})), 1000)
        assert f'<rect class="band {landed}"' in svg
        assert ">f</text>" in svg


def test_however_many_faults_were_on_at_once_what_is_below_can_be_seen() -> None:
    history = told(*(firing(n / 10, f"f{n}") for n in range(30)), (9, "end", {}))
    assert at_once(bands(history)) == 30
    svg = render(history, 1000)
    assert {float(each) for each in re.findall(r'fill-opacity="([\d.]+)"', svg)} == {0.02}


def task(
    at_s: float, step: int | None, lease: str = "lease-1"
) -> tuple[float, str, dict[str, Any]]:
    view = {"task_id": "task-1", "lease_id": lease, "node_id": "worker-1", "step": step}
    return (at_s, "task", {"role": "main", "task": view})


def final(log: str) -> tuple[float, str, dict[str, Any]]:
    tasks = [{"task_id": "task-1", "lease_id": "lease-1"}]
    return (90, "job_final", {"role": "main", "tasks": tasks, "logs": log})


SUBMITTED = (0.0, "job_submitted", {"role": "main", "job_id": "job-1"})


def test_each_attempt_has_a_curve_of_the_steps_that_were_heard_of() -> None:
    history = told(task(1, None), task(2, 4), task(3, 8), task(5, 6, "lease-2"))
    made = {curve.lease_id: curve.points for curve in steps(history)}
    assert made == {
        "lease-1": ((2 * SECOND, 4), (3 * SECOND, 8)),
        "lease-2": ((5 * SECOND, 6),),
    }


def test_the_loss_of_a_step_stands_where_that_step_was_heard_of() -> None:
    log = (
        'words\n{"seq": 6, "loss": 0.5}\n{"step": 8, "loss": 0.25}\n{"step": 3, "loss": 9}\n'
        '{"step": 9, "loss": 0.125}\n{"step": 7, "loss": NaN}\n{"loss": 1}\n{"loss": '
    )
    history = told(SUBMITTED, task(2, 4), task(4, 8), final(log))
    (curve,) = losses(history, steps(history))
    assert curve.points == ((3 * SECOND, 0.5), (4 * SECOND, 0.25), (4 * SECOND, 0.125))


def test_heartbeats_that_had_no_answer_are_told_apart_from_those_that_were_heard() -> None:
    story = Story(Random(5), {"main": [Fate.ZOMBIE]})
    history = History(story.records)
    found = heartbeats(history, steps(history), {"main-lease-1": [7]})
    refused = [e.mono_ns for e in history.events() if e.type == "LEASE_REFUSED"]
    assert found.unanswered["job main"] == (7, *refused)
    assert found.heard["job main"]
    svg = render(history, 1000, {"main-lease-1": [history.events()[3].mono_ns]})
    assert svg.count('<path class="heard"') == 2
    assert svg.count('<path class="unheard"') == 1


def test_a_thinned_curve_keeps_the_extremes_of_each_pixel() -> None:
    points = [(x / 100, float((x * 37) % 101)) for x in range(1000)]
    kept = thinned(points)
    assert len(kept) <= 4 * 10
    assert set(kept) <= set(points)
    assert (max(y for _, y in kept), min(y for _, y in kept)) == (100.0, 0.0)


def test_nothing_is_drawn_outside_the_canvas() -> None:
    scale = Scale(10, 20, 500)
    assert [scale.x(at) for at in (0, 10, 20, 99)] == [10, 10, 490, 490]


@pytest.fixture(scope="module")
def long_run() -> History:
    jobs = {f"job-{n:03}": [Fate.KILLED, Fate.CRASHED, Fate.ZOMBIE] for n in range(260)}
    return History(Story(Random(2), jobs).records)


def test_a_history_of_ten_thousand_records_gives_a_page_of_bounded_size(long_run: History) -> None:
    assert len(long_run.records) > 10_000
    beginning = History(long_run.records[:500])
    judgement = judge(beginning, registry.invariants(["faults_landed"]))
    text = html(judgement, long_run)
    assert len(text) < 2_500_000
    assert text.count("<") < 80_000


def test_lanes_that_have_no_room_are_summed_up(long_run: History) -> None:
    svg = render(long_run, 1000)
    assert svg.count(' class="rail"') == 16 + 1
    assert ">245 lanes more: leases held there, at most " in svg
    places = [float(x) for x in re.findall(r' (?:x|cx|x1|x2)="([-\d.]+)"', svg)]
    assert 0 <= min(places) <= max(places) <= 1000


def test_faults_that_find_no_room_for_their_names_are_counted(long_run: History) -> None:
    svg = render(long_run, 380)
    names = svg.count('<text class="fault')
    assert f">and {len(bands(long_run)) - names} faults more</text>" in svg
