"""The document, its host, its tables, and two of them compared."""

import json
import platform
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from benchmarks import host as hosts
from benchmarks.compare import compare, unlike
from benchmarks.render import render, table
from benchmarks.scenario import Bench
from benchmarks.schema import Document, Host, Row, UsageError, load, save

Make = Callable[..., Bench]


def document(host: Host, rows: list[Row], **fields: Any) -> Document:
    given = {
        "host": host, "started_at": datetime.now(UTC), "command": "x", "smoke": False,
        "complete": True, "wall_s": 1.0, "rows": rows, **fields,
    }  # fmt: skip
    return Document(**given)


@pytest.fixture
def row(bench: Make) -> Callable[..., Row]:
    def build(samples: list[float], **fields: Any) -> Row:
        here = bench()
        here.report(samples, **fields)
        return here.rows[0]

    return build


def test_a_document_is_strict_json_and_comes_back_equal(
    tmp_path: Path, host: Host, row: Callable[..., Row]
) -> None:
    """Case 169: where there is no number there is null and a reason."""
    made = document(host, [row([1.0, 2.0], comparators={"bare": [1.5, 1.5]}), row([], variant="b")])
    save(made, tmp_path / "a.json")
    text = (tmp_path / "a.json").read_text()
    plain = json.loads(text, parse_constant=pytest.fail)
    assert plain["schema"] == "bench_v1"
    assert plain["rows"][1]["median"] is None
    assert plain["rows"][1]["reason"]
    assert load(tmp_path / "a.json") == made


def test_the_document_has_the_fields_of_the_contract(host: Host, row: Callable[..., Row]) -> None:
    made = json.loads(document(host, [row([1.0])]).model_dump_json())
    assert {"schema", "host", "rows"} <= set(made)
    assert {"os", "cpu", "cores", "ram_gb", "python", "torch", "flashruntime"} <= set(made["host"])
    named = {
        "scenario", "section", "unit", "median", "p10", "p90", "repeats", "samples",
        "comparators", "notes",
    }  # fmt: skip
    assert named <= set(made["rows"][0])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_no_figure_is_infinite_or_not_a_number(value: float, row: Callable[..., Row]) -> None:
    with pytest.raises(ValidationError):
        row([value])


def test_two_rows_of_one_name_are_refused(host: Host, row: Callable[..., Row]) -> None:
    with pytest.raises(ValidationError, match="give them variants"):
        document(host, [row([1.0]), row([2.0])])


@pytest.mark.parametrize("text", ["", "[]", "{", '{"schema": "bench_v2"}', "null"])
def test_what_is_no_document_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"bad\.json is not a bench_v1 document"):
        load(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.json cannot be read"):
        load(tmp_path / "none.json")


@given(st.text())
def test_any_name_becomes_a_plain_file_name(text: str) -> None:
    """Case 171."""
    name = hosts.plain_name(text)
    assert name
    assert len(name) <= hosts.MAX_SLUG
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")


@pytest.mark.parametrize("name", ["lab pc/№1 (new)", "", "x" * 255])
def test_the_name_of_the_machine_is_never_kept(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(platform, "node", lambda: name)
    described = hosts.describe({}, tmp_path).model_dump_json()
    assert not name or name not in described


def test_the_host_is_described_by_its_effective_limits(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Case 173: a control group's memory limit and the usable cores, not the metal's."""
    limit = tmp_path / "memory.max"
    limit.write_text(f"{1024**3}\n")
    monkeypatch.setattr(hosts, "_MEMORY_LIMITS", (str(tmp_path / "none"), str(limit)))
    monkeypatch.setattr(hosts, "usable_cores", lambda: 1)
    found = hosts.describe({hosts.PLACE_VARIABLE: "image x"}, tmp_path)
    assert (found.ram_gb, found.cores, found.place) == (1.0, 1, "image x")
    limit.write_text("max\n")
    assert hosts.describe({}, tmp_path).ram_gb > 1.0


@pytest.mark.parametrize(
    "change",
    [
        {"cpu": "other"},
        {"cores": 64},
        {"ram_gb": 16.0},
        {"python": "3.11.7"},
        {"torch": "2.6"},
        {"os": "Ubuntu"},
        {"disk": "tmpfs"},
        {"place": "image x"},
    ],
)
def test_unlike_hosts_are_refused(
    host: Host, row: Callable[..., Row], change: dict[str, Any]
) -> None:
    other = host.model_copy(update=change)
    [name] = change
    with pytest.raises(UsageError, match=f"unlike hosts.*{name}"):
        compare(document(host, [row([1.0])]), document(other, [row([1.0])]))


def test_what_was_built_or_loaded_since_makes_no_other_host(host: Host) -> None:
    other = {"commit": "def", "flashruntime": "0.2", "load_1m": 2.0, "python": "3.13.6"}
    assert unlike(host, host.model_copy(update=other)) == []


def test_a_smoke_is_not_compared_with_a_measurement(host: Host, row: Callable[..., Row]) -> None:
    with pytest.raises(UsageError, match="smoke"):
        compare(document(host, [row([1.0])]), document(host, [row([1.0])], smoke=True))


@pytest.mark.parametrize(
    ("better", "after", "finding"),
    [
        ("lower", [0.5, 0.51, 0.52, 0.53, 0.54, 0.55], "better"),
        ("higher", [0.5, 0.51, 0.52, 0.53, 0.54, 0.55], "worse"),
        ("lower", [1.01, 1.0, 1.04, 1.03, 1.02, 1.05], "not significant"),
        ("lower", [], "not comparable"),
    ],
)
def test_a_change_is_named_only_where_the_ranks_tell_it(
    host: Host, row: Callable[..., Row], better: str, after: list[float], finding: str
) -> None:
    before = [1.0, 1.01, 1.02, 1.03, 1.04, 1.05]
    rows = [[row(before, better=better)], [row(after, better=better)]]
    [change] = compare(document(host, rows[0]), document(host, rows[1]))
    assert change.finding == finding


def test_figures_of_one_side_only_are_shown_as_such(host: Host, row: Callable[..., Row]) -> None:
    found = compare(
        document(host, [row([1.0], variant="old")]), document(host, [row([1.0], variant="new")])
    )
    assert [(each.name, each.finding) for each in found] == [
        ("some old", "not comparable"),
        ("some new", "not comparable"),
    ]


def test_the_page_shows_hypothesis_method_figures_notes_and_what_broke(
    host: Host, row: Callable[..., Row]
) -> None:
    rows = [row([1.0, 2.0, 3.0], comparators={"bare": [1.0, 1.0, 1.0]}, notes=["a | caveat"])]
    broken = [{"scenario": "other", "error": "BenchError: no"}]
    page = render(document(host, rows, broken=broken, smoke=True))
    for part in ("it is fast", "by measuring", "| some | 2 | 1.2 | 2.8 | s | 3 | bare 1 |"):
        assert part in page
    for part in ("- a | caveat", "not significant: difference +1", "other broke:", "smoke run"):
        assert part in page


def test_text_stays_in_its_cell() -> None:
    assert table(["a"], [["x | y\nz"]]).splitlines()[-1] == r"| x \| y z |"
