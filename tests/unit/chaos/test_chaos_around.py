"""What the logs of a run directory said around each fault: placed, bounded, and only text."""

import json
from pathlib import Path

import pytest

from chaos import registry
from chaos.around import MOST_CHARACTERS, MOST_LINES, read
from chaos.drawing.bands import bands
from chaos.history import History, Record
from chaos.judge import judge
from chaos.page import safe
from chaos.report import html
from tests.unit.chaos import html_reading

SECOND = 1_000_000_000
AT_S = 100


def history() -> History:
    """A run that begins at 50 s, at noon, and has a fault from 100 s to 101 s."""
    plan = {"experiment": "e", "seed": 1, "workers": 2, "schedule": [], "invariants": []}
    entries = [
        (50, "plan", plan),
        (AT_S, "fault_firing", {"fault_id": "f", "kind": "kill"}),
        (AT_S + 1, "fault_receipt", {"fault_id": "f", "landed": "landed", "evidence": {}}),
    ]
    wall = "2026-12-01T12:00:00+00:00"
    return History(
        Record(seq, at_s * SECOND, "boot", wall, "test", kind, data)
        for seq, (at_s, kind, data) in enumerate(entries)
    )


def line(at_s: float, word: str) -> str:
    return json.dumps({"mono_ns": int(at_s * SECOND), "message": word}) + "\n"


def said(folder: Path, content: str) -> list[tuple[float, str]]:
    (folder / "worker-1.log").write_text(content, encoding="utf-8", errors="surrogatepass")
    told = history()
    around = read(folder, told, bands(told)).around["f"].get("worker-1", ())
    return [(each.after_s, each.line) for each in around]


def test_lines_some_seconds_before_and_after_a_fault_are_shown(tmp_path: Path) -> None:
    places = (AT_S - 9, AT_S - 1.5, AT_S + 0.25, AT_S + 3, AT_S + 9)
    found = said(tmp_path, "".join(line(at_s, f"at {at_s}") for at_s in places))
    assert [after_s for after_s, _ in found] == [-1.5, 0.25, 3]


def test_a_line_with_wall_time_alone_is_placed_by_it_and_one_without_by_the_line_before(
    tmp_path: Path,
) -> None:
    content = (
        '{"time":"2026-12-01T12:00:00Z","message":"early"}\n'
        '{"level":"info","time":"2026-12-01T12:00:50Z","message":"there"}\n'
        "Traceback (most recent call last):\n"
        '{"time":"no time at all 20261","message":"odd"}\n'
    )
    found = said(tmp_path, content)
    assert [after_s for after_s, _ in found] == [0, 0, 0]
    assert "Traceback" in found[1][1]


def test_of_many_lines_those_nearest_to_the_firing_stay_in_order(tmp_path: Path) -> None:
    found = said(tmp_path, "".join(line(AT_S + n / 100, f"{n}") for n in range(-150, 150)))
    assert len(found) == MOST_LINES
    assert found == sorted(found)
    assert max(abs(after_s) for after_s, _ in found) < 0.15


def test_a_long_line_is_cut(tmp_path: Path) -> None:
    ((_, cut),) = said(tmp_path, line(AT_S, "x" * 10_000))
    assert len(cut) < MOST_CHARACTERS + 5


def test_heartbeats_without_an_answer_are_found_by_lease(tmp_path: Path) -> None:
    told = {"mono_ns": 7, "event": "heartbeat_unanswered", "lease_id": "lease-1"}
    (tmp_path / "worker-1.log").write_text(json.dumps(told) + "\n")
    assert read(tmp_path, history(), ()).unanswered == {"lease-1": (7,)}


def test_without_logs_nothing_was_said(tmp_path: Path) -> None:
    told = history()
    assert read(tmp_path / "logs", told, bands(told)).around == {"f": {}}


NASTY = "</pre><script>x</script>\u2028\u202e\x00\x1b[31m\ud800&\"'"


def test_what_containers_said_stays_text_on_the_page(tmp_path: Path) -> None:
    (tmp_path / "<b>.log").write_text(
        line(AT_S, "") + NASTY, encoding="utf-8", errors="surrogatepass"
    )
    told = history()
    logs = read(tmp_path, told, bands(told))
    text = html(judge(told, registry.invariants(["faults_landed"])), told, logs)
    page = html_reading.read(text)
    assert page.open == []
    assert "script" not in page.tags
    assert "b" in page.tags, "the report's own"
    shown = text.partition("Logs around each fault")[2]
    assert "&lt;b&gt;" in shown
    assert r"\u2028\u202e\x00\x1b[31m" in shown
    text.encode("utf-8")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a<b>&\"'", "a&lt;b&gt;&amp;&quot;&#x27;"),
        ("\x00\x1b\x7f\r\n\t", "\\x00\\x1b\\x7f\\x0d\n\t"),
        ("\u2028\u2029\u202e\ufeff\ud800", "\\u2028\\u2029\\u202e\\ufeff\\ud800"),
        ("Größe 火 🔥", "Größe 火 🔥"),
    ],
)
def test_text_is_shown_as_it_is_but_for_what_cannot_be_seen(text: str, shown: str) -> None:
    assert safe(text) == shown
