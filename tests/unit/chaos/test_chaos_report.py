"""The report: one self-contained file, whatever the history holds."""

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chaos import registry
from chaos.history import History, Record
from chaos.judge import Judgement, invariants_of, judge
from chaos.model import Finding, Verdict
from chaos.report import html, junit, told, write
from chaos.testing import FakeMachine
from chaos.timeline import holders, render
from tests.unit.chaos.conftest import Harness, KillHolder, kill_at
from tests.unit.chaos.html_reading import read

NASTY = "<script>alert('\x00\x1b]0;x\x07')</script>&\"'"


@pytest.fixture(scope="module")
def told_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Judgement, History]:
    harness = Harness(FakeMachine(), tmp_path_factory.mktemp("run"))
    harness.run(KillHolder(), kill_at(60))
    history = harness.history
    return judge(history, registry.invariants(invariants_of(history))), history


def test_the_report_is_well_formed_and_loads_nothing(told_run: Any) -> None:
    page = read(html(*told_run))
    assert page.open == []
    assert page.loads == []
    assert {"svg", "table", "style"} <= page.tags


def test_the_report_names_verdict_faults_invariants_and_the_command_to_run_again(
    told_run: Any,
) -> None:
    text = html(*told_run)
    for expected in (
        "valid",
        "kill-1",
        "resume_newest_valid",
        "python -m chaos run storm --seed 1 --workers 3",
        "job reference",
        "attempt 2 on worker-",
    ):
        assert expected in text


def test_the_report_tells_the_story_from_what_it_does_to_the_command_that_repeats_it(
    told_run: Any,
) -> None:
    judgement, history = told_run
    text = html(judgement, history).partition("</style>")[2]
    began = history.records[0].wall[:10]
    order = [
        "What it does: kills a worker.",
        began,
        "run-1",
        "seed 1",
        "3 workers",
        "Time line",
        "Once another attempt has claimed the task, the earlier holder changes nothing.",
        "python -m chaos run storm --seed 1 --workers 3</pre>",
    ]
    places = [text.find(part) for part in order]
    assert -1 not in places
    assert places == sorted(places)


def test_what_does_not_hold_stands_first(told_run: Any) -> None:
    judgement, history = told_run
    bad = Finding("mine", Verdict.VIOLATED, "because")
    text = html(replace(judgement, findings=(*judgement.findings, bad)), history)
    assert text.index("<b>mine</b>") < text.index("<b>same_as_reference</b>")


def test_goodput_is_told_as_a_bound_with_what_it_leaves_out(told_run: Any) -> None:
    text = html(*told_run)
    assert re.search(r"<b>≤ \d", text)
    assert "steps heard of" in text


def test_each_lease_bar_has_the_name_and_the_colour_of_its_holder(told_run: Any) -> None:
    _, history = told_run
    svg = render(history, 1000)
    lost, taker = (
        event.data["node_id"]
        for event in history.events(history.job_id("main"))
        if event.type == "LEASE_CLAIMED"
    )
    tones = holders(history)
    assert tones[lost] != tones[taker]
    for node in (lost, taker):
        assert f'class="{tones[node]}"' in svg
        assert f">{node}</text>" in svg
    assert ">resumed from step " in svg


@pytest.mark.parametrize(("resumed", "then"), [(3, "resumed from step 3"), (None, "started anew")])
def test_a_refused_checkpoint_is_marked_where_it_was_refused(
    told_run: Any, resumed: int | None, then: str
) -> None:
    _, history = told_run
    records = []
    for record in history.records:
        data = dict(record.data)
        if record.kind == "job_final" and data["role"] == "main":
            data["logs"] = 'a word\n{"event": "checkpoint_rejected", "step": 6}\n'
        if record.kind == "checkpoints" and data["role"] == "main":
            data["lineage"] = [{**link, "step": resumed} for link in data["lineage"]]
        records.append(replace(record, data=data))
    assert f"<title>step 6 refused, {then}: " in render(History(records), 1000)


def test_both_time_lines_stay_on_their_canvas(told_run: Any) -> None:
    for width in (1000, 380):
        svg = render(told_run[1], width)
        places = [float(x) for x in re.findall(r' (?:x|cx|x1|x2)="([\d.]+)"', svg)]
        assert svg.startswith(f'<svg viewBox="0 0 {width} ')
        assert 0 <= min(places) <= max(places) <= width


def nasty_history() -> History:
    plan = {
        "experiment": NASTY,
        "seed": 1,
        "workers": 3,
        "schedule": [{"fault_id": NASTY, "kind": NASTY, "target": NASTY}],
        "invariants": [],
    }
    entries: list[tuple[str, dict[str, Any]]] = [
        ("plan", plan),
        ("fault_firing", {"fault_id": NASTY}),
        ("note", {"text": NASTY, "error": NASTY}),
        ("fault_receipt", {"fault_id": NASTY, "landed": NASTY, "evidence": {"reason": NASTY}}),
        ("job_submitted", {"role": NASTY, "job_id": NASTY}),
        ("end", {"end": "cannot_run", "reason": NASTY, "log_tails": {NASTY: NASTY}}),
    ]
    return History(
        Record(seq, seq, "boot", "2026", "test", kind, data)
        for seq, (kind, data) in enumerate(entries)
    )


def test_text_from_the_run_never_becomes_markup() -> None:
    history = nasty_history()
    judgement = judge(history, registry.invariants(["faults_landed"]))
    page = read(html(judgement, history))
    assert "script" not in page.tags
    suite = ET.fromstring(junit(judgement).encode())  # noqa: S314 (our own text)
    assert suite.attrib["errors"] == "2"


def test_a_history_that_stops_after_its_plan_still_has_a_report(tmp_path: Path) -> None:
    history = History(nasty_history().records[:1])
    judgement = judge(history, registry.invariants(invariants_of(history)))
    write(tmp_path, judgement, history)
    assert {path.name for path in tmp_path.iterdir()} == {
        "verdict.json",
        "report.html",
        "junit.xml",
        "metrics.prom",
    }


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), ([], "-"), ([1.0, 2.345], "1.00, 2.35"), (0.5, "0.50"), (3, "3")],
)
def test_figures_are_told_with_two_decimals_and_a_dash_for_none(value: Any, text: str) -> None:
    assert told(value) == text


def test_of_many_figures_the_report_tells_their_median_and_range(told_run: Any) -> None:
    judgement, history = told_run
    many = replace(judgement, figures={**judgement.figures, "mttd_s": [0.5] * 20 + [3.0]})
    assert "<b>0.50 (median of 21, 0.50 to 3.00)</b>" in html(many, history)
