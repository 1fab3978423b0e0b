"""The report: one self-contained file, whatever the history holds."""

import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from chaos import registry
from chaos.history import History, Record
from chaos.judge import Judgement, invariants_of, judge
from chaos.report import html, junit, told, write

NASTY = "<script>alert('\x00\x1b]0;x\x07')</script>&\"'"
VOID = {"meta"}


class Nesting(HTMLParser):
    """Checks that every element is closed, and collects what would be loaded from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.loads += [str(value) for name, value in attrs if name in {"src", "href"}]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def parsed(text: str) -> Nesting:
    page = Nesting()
    page.feed(text)
    page.close()
    return page


@pytest.fixture
def told_run(harness: Any, kill: Any, action: Any) -> tuple[Judgement, History]:
    harness.run(kill(), action(5))
    history = harness.history
    return judge(history, registry.invariants(invariants_of(history))), history


def test_the_report_is_well_formed_and_loads_nothing(told_run: Any) -> None:
    page = parsed(html(*told_run))
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
        ("end", {"end": "cannot_run", "reason": NASTY}),
    ]
    return History(
        Record(seq, seq, "boot", "2026", "test", kind, data)
        for seq, (kind, data) in enumerate(entries)
    )


def test_text_from_the_run_never_becomes_markup() -> None:
    history = nasty_history()
    judgement = judge(history, registry.invariants(["faults_landed"]))
    page = parsed(html(judgement, history))
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
    }


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), ([], "-"), ([1.0, 2.345], "1.00, 2.35"), (0.5, "0.50"), (3, "3")],
)
def test_figures_are_told_with_two_decimals_and_a_dash_for_none(value: Any, text: str) -> None:
    assert told(value) == text
