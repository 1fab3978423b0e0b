"""Which record made a history violated, and how the report leads there."""

import re
from dataclasses import replace
from random import Random

import pytest

from chaos import registry
from chaos.cited import MOST_ROWS, Events
from chaos.history import History, Record
from chaos.judge import Judgement, invariants_of, judge
from chaos.report import html
from chaos.testing.story import Fate, Story
from tests.unit.chaos.html_reading import read


@pytest.fixture(scope="module")
def records() -> list[Record]:
    return Story(Random(5), {"main": [Fate.KILLED, Fate.ZOMBIE]}).records


def judged(records: list[Record]) -> tuple[Judgement, History]:
    history = History(records)
    return judge(history, registry.invariants(invariants_of(history))), history


def broken(records: list[Record]) -> list[Record]:
    """Let the second claim of main repeat the number of the first."""
    claims = [r for r in records if r.data.get("type") == "LEASE_CLAIMED"]
    second = [r for r in claims if r.data.get("task_id") == "task-main"][1]
    data = {**second.data, "data": {**second.data["data"], "attempt_number": 1}}  # type: ignore[dict-item]
    return [replace(r, data=data) if r is second else r for r in records]


def test_the_record_that_made_a_history_violated_is_found(records: list[Record]) -> None:
    judgement, history = judged(broken(records))
    found = next(each for each in judgement.findings if each.name == "one_live_lease")
    assert found.decided_at is not None
    decided = history.records[found.decided_at]
    assert decided.data["type"] == "LEASE_CLAIMED"
    assert decided.data["data"]["attempt_number"] == 1  # type: ignore[call-overload, index]


def test_what_holds_was_decided_by_no_single_record(records: list[Record]) -> None:
    judgement, _ = judged(records)
    assert {found.decided_at for found in judgement.findings} == {None}


def test_the_sentence_and_the_deciding_record_lead_to_rows_of_the_list(
    records: list[Record],
) -> None:
    judgement, history = judged(broken(records))
    text = html(judgement, history)
    page = read(text)
    assert page.open == []
    assert {f"#{name}" for name in page.ids} >= set(page.links)
    (number,) = re.findall(r'<a href="#event-(\d+)">event \1</a> repeats attempt number', text)
    assert f'Violated as soon as <a href="#event-{number}">record ' in text
    assert len(page.ids) == len(set(page.ids))


def test_names_of_faults_leases_and_checkpoints_are_links(records: list[Record]) -> None:
    history = History(records)
    events = Events(history)
    told = events.linked("main-1 took main-lease-1 (main-lease-1-10), nobody, event 3.")
    words = re.findall(r'<a href="#[a-z]+-\d+">([^<]*)</a>', told)
    assert words == ["main-1", "main-lease-1", "main-lease-1-10", "event 3"]
    assert told.endswith("</a>.")


def test_of_very_many_events_those_that_are_linked_stay(records: list[Record]) -> None:
    jobs = {f"job-{number}": [Fate.CRASHED, Fate.KILLED] for number in range(150)}
    history = History(Story(Random(1), jobs).records)
    events = Events(history)
    last = history.events()[-1].id
    events.linked(f"event {last}")
    rows, count = events.rows()
    assert count > 2 * MOST_ROWS
    assert len(rows) == MOST_ROWS
    assert f"event-{last}" in {row.anchor for row in rows}
    assert [row.at_ns for row in rows] == sorted(row.at_ns for row in rows)


def test_no_word_of_the_history_becomes_markup_where_it_is_linked() -> None:
    nasty = '"><script>x</script>'
    data = {"fault_id": nasty, "landed": "landed", "evidence": {}}
    history = History([Record(0, 1, "boot", "2026", "test", "fault_receipt", data)])
    told = Events(history).linked(f"{nasty} and <b>")
    assert "<script" not in told
    assert "<b>" not in told
