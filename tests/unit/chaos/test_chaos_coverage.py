"""What saved runs have exercised, as a table, a page and JSON."""

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from chaos import registry
from chaos.cli import main
from chaos.coverage import Coverage, SavedRun, State, cover
from chaos.coverage_page import html
from chaos.figures.phases import Phase
from chaos.history import History, Record
from chaos.judge import STANDING, judge
from chaos.testing.story import Fate, Story
from tests.unit.chaos.html_reading import read

Cli = Callable[..., int]


def story() -> list[Record]:
    return Story(Random(3), {"main": [Fate.KILLED], "second": [Fate.ZOMBIE]}).records


def saved(name: str, records: list[Record], **verdict: Any) -> SavedRun:
    history = History(records)
    judged = judge(history, registry.invariants(STANDING)).to_json()
    return SavedRun(name, history, {**judged, **verdict})


def of(state: str, landed: str = "landed") -> SavedRun:
    """A run with one fault, `killed`, and the invariant `mine` with this verdict."""
    fault = {"id": "main-1", "kind": "killed", "landed": landed}
    mine = {"name": "mine", "verdict": state}
    return saved(f"run-{state}-{landed}", story(), faults=[fault], invariants=[mine])


def covered(*runs: SavedRun) -> Coverage:
    return cover(runs, ["killed", "unused"], ["mine", "other"])


@pytest.mark.parametrize(
    ("runs", "state"),
    [
        ([], State.NOT_EXERCISED),
        ([of("valid", "missed")], State.MISSED),
        ([of("unknown")], State.UNKNOWN),
        ([of("unknown"), of("valid", "inconclusive"), of("valid")], State.PASS),
        ([of("valid"), of("violated")], State.FAIL),
    ],
)
def test_of_several_runs_the_first_state_counts(runs: list[SavedRun], state: State) -> None:
    found = covered(*runs)
    assert found.state(fault="killed", invariant="mine") is state
    assert found.state(fault="unused") is State.NOT_EXERCISED
    assert found.state(fault="killed", invariant="other") is State.NOT_EXERCISED


def test_what_no_run_exercised_is_named() -> None:
    never = covered(of("valid")).never()
    assert never["faults"] == ["unused"]
    assert never["invariants"] == ["other"]
    assert "committing_manifest" in never["phases"]
    assert "killed" in covered(of("valid", "missed")).never()["faults"]


def test_every_cell_is_in_one_state() -> None:
    told = covered(of("valid"), of("valid", "missed")).counts()
    assert sum(told.values()) == (len(Phase) - 1) * 2 * 2
    assert told[State.PASS] == 1


def test_a_build_with_a_planted_bug_says_nothing_of_the_runtime() -> None:
    records = story()
    plan = next(record for record in records if record.kind == "plan")
    planted = replace(plan, data={**plan.data, "planted": "no_fencing"})
    found = covered(saved("bad", [planted if r is plan else r for r in records]))
    assert found.cells == {}
    assert found.left_out == ("bad: a build with a planted bug",)


def test_json_lists_the_cells_that_were_tried_with_an_example_of_each() -> None:
    told = json.loads(json.dumps(covered(of("valid"), of("violated")).to_json()))
    (cell,) = told["cells"]
    assert (cell["fault"], cell["invariant"], cell["state"]) == ("killed", "mine", "FAIL")
    assert cell["runs"] == {"PASS": 1, "FAIL": 1}
    assert cell["example"] == "run-violated-landed"
    assert set(told["phases"]) == {phase.name.lower() for phase in Phase}


def test_the_page_is_well_formed_loads_nothing_and_shows_text_as_text() -> None:
    nasty = "<script>alert(1)</script>\u2028"
    run = replace(of("valid"), name=nasty)
    fault = {"id": "main-1", "kind": nasty, "landed": "landed"}
    page = read(html(covered(replace(run, verdict={**run.verdict, "faults": [fault]}))))
    assert page.open == []
    assert page.loads == []
    assert "script" not in page.tags
    assert {f"#{target}" for target in page.ids} >= set(page.links)


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.chdir(tmp_path)
    return lambda *argv: main(list(argv))


def save(folder: Path, records: list[Record]) -> None:
    folder.mkdir(parents=True)
    lines = "".join(json.dumps(asdict(record)) + "\n" for record in records)
    (folder / "history.jsonl").write_text(lines, encoding="utf-8")


def test_the_verb_covers_every_readable_run_of_a_folder_once(
    cli: Cli, capsys: pytest.CaptureFixture[str]
) -> None:
    save(Path("runs/one"), story())
    save(Path("runs/torn"), story()[:1])
    Path("runs/latest").symlink_to("one")
    assert cli("coverage", "--runs", "runs", "--json", "--html", "cover.html") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["runs"] == ["one"]
    assert told["left_out"] == ["torn: the history has no 'plan' record"]
    assert {cell["fault"] for cell in told["cells"]} == {"killed", "zombie"}
    assert set(registry.faults()) < set(told["faults"])
    assert set(STANDING) <= set(told["invariants"])
    assert "zombie" in Path("cover.html").read_text(encoding="utf-8")


def test_the_table_has_a_row_for_each_fault_and_says_what_is_missing(
    cli: Cli, capsys: pytest.CaptureFixture[str]
) -> None:
    save(Path("chaos-runs/one"), story())
    assert cli("coverage") == 0
    out = capsys.readouterr().out
    rows = [line.split()[0] for line in out.splitlines() if line]
    assert set(registry.faults()) <= set(rows)
    assert "faults that no landed fault exercised:" in out


def test_a_folder_without_runs_is_a_usage_error(
    cli: Cli, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli("coverage", "--runs", "nowhere") == 2
    assert "nowhere has no saved run" in capsys.readouterr().err
