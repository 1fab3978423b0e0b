"""The pages of the documentation: nothing on them that no result file holds."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from benchmarks import audit, pages, plots, shares
from benchmarks.render import number
from benchmarks.scenario import Bench, Scenario, series
from benchmarks.schema import NOT_ON_TARGET, Document, Host, Row, Section, save

Plant = Callable[..., Document]
NASTY = "a|b *c* [d](e) <b>f</b> `g` \\ &amp; # h"


@pytest.fixture
def plant(host: Host, bench: Callable[..., Bench], scenario: Callable[..., Scenario]) -> Plant:
    """Make a document of scenarios: name -> the reports that it makes."""

    def build(reports: Mapping[str, Sequence[Mapping[str, Any]]], **fields: Any) -> Document:
        rows: list[Row] = []
        for name, made in reports.items():
            section = Section.RESILIENCE if name.startswith("r_") else Section.PERFORMANCE
            here = bench(scenario=scenario(name=name, section=section))
            for each in made:
                here.report(**each)
            rows += here.rows
        given = {
            "host": host, "started_at": datetime.now(UTC), "command": "x", "smoke": False,
            "complete": True, "wall_s": 1.0, "rows": rows, **fields,
        }  # fmt: skip
        return Document(**given)

    return build


def html(markdown: str) -> str:
    return MarkdownIt().enable("table").render(markdown)


def text_of(markup: str) -> str:
    found: list[str] = []

    class Reader(HTMLParser):
        def handle_data(self, data: str) -> None:
            found.append(data)

    Reader().feed(markup)
    return " ".join("".join(found).split())


def made(tmp_path: Path, document: Document) -> dict[str, str]:
    return {name: html(text) for name, text in pages.pages({"host-a": document}, tmp_path).items()}


def test_a_page_shows_what_the_document_holds_and_passes_its_own_check(
    tmp_path: Path, plant: Plant
) -> None:
    document = plant(
        {
            "speed": [
                {
                    "samples": [1.0, 2.0, 4.0],
                    "variant": "cold",
                    "comparators": {"bare": [1.5, 1.25, 1.75], "ray": None},
                    "figures": [series("phase: first", "s", [0.5]), series("rss", "MB", [12.0])],
                    "notes": [NASTY, "ray: not measured: not installed"],
                }
            ],
            "r_heal": [{"samples": [], "notes": ["no engine here"]}],
        }
    )
    made_pages = made(tmp_path, document)
    for name, page in made_pages.items():
        pages.check(name, page, {"host-a": document})
    performance = text_of(made_pages["benchmarks/performance.md"])
    assert "speed (cold)" in performance
    assert NASTY in performance
    assert "ray: not measured: not installed" in performance
    assert "r_heal" not in performance
    assert "no number: no engine here" in text_of(made_pages["benchmarks/resilience.md"])
    assert "bare 1.5" in text_of(made_pages["benchmarks/index.md"])


@pytest.mark.parametrize(
    ("shown", "instead"),
    [
        ("<td>2</td>", "<td>1.999</td>"),
        ("<td>3</td>", "<td>30</td>"),
        ("<td>s</td>", "<td>ms</td>"),
        ("bare 1.5", "bare 2.5"),
        ("bare 1.5", "bare 1.5, naive 9"),
        ("not significant", "significant"),
        ("speed", "haste"),
    ],
)
def test_a_line_that_no_file_holds_is_named(
    tmp_path: Path, plant: Plant, shown: str, instead: str
) -> None:
    document = plant({"speed": [{"samples": [1.0, 2.0, 4.0], "comparators": {"bare": [1.5] * 3}}]})
    page = "".join(made(tmp_path, document).values())
    assert shown in page
    with pytest.raises(pages.NotHeld, match=r"a page: no result file holds '(speed|haste|bare)'"):
        pages.check("a page", page.replace(shown, instead), {"host-a": document})


def test_a_table_of_results_needs_a_result_file() -> None:
    typed = html("| figure | median |\n| - | - |\n| speed | 3 |\n")
    with pytest.raises(pages.NotHeld, match="'speed' with median 3"):
        pages.check("start.md", typed, {})
    pages.check("start.md", html("| figure | size |\n| - | - |\n| speed | 3 |\n"), {})


@example(0.0, -0.0)
@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(-1e9, 1e9))
def test_a_number_is_what_it_was_rounded_from_and_nothing_else(value: float, other: float) -> None:
    assert audit.shows(number(value), value)
    if float(f"{value:.4g}") != float(f"{other:.4g}"):
        assert not audit.shows(number(value), other)


@given(st.text(max_size=12))
def test_text_is_no_number_unless_it_reads_as_that_one(text: str) -> None:
    if audit.shows(text, 2.5):
        assert float(text.replace(",", "")) == 2.5


names = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=9)
samples = st.lists(st.floats(-1e6, 1e6).map(lambda x: round(x, 6)), min_size=1, max_size=6)


reports = st.fixed_dictionaries(
    {
        "samples": samples,
        "variant": names,
        "unit": names,
        "comparators": st.dictionaries(names, samples, max_size=2),
        "paired": st.booleans(),
        "notes": st.lists(names, max_size=2),
    }
)


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=30
)
@given(report=reports)
def test_any_document_is_shown_whole_and_held(
    tmp_path: Path, plant: Plant, report: dict[str, Any]
) -> None:
    """Whatever names, units and notes consist of, they are shown as they are."""
    document = plant({"speed": [report]})
    assert audit.documents({"a": document}) == []
    shown = made(tmp_path, document)
    for where, page in shown.items():
        pages.check(where, page, {"a": document})
    performance = text_of(shown["benchmarks/performance.md"])
    for word in (f"speed ({report['variant']})", report["unit"], *report["notes"]):
        assert word in performance


@pytest.mark.parametrize(
    ("place", "value", "told"),
    [
        (("median",), 1.5, "median is 1.5, its samples give 2"),
        (("p90",), 9.0, "p90 is 9"),
        (("series", 0, "median"), 0.1, "bare"),
        (("comparators", "bare"), 0.5, "the comparator 'bare' has 0.5"),
        (("comparisons", 0, "finding"), "significant: a lot", "is not what samples give"),
        (("comparisons", 0, "p_value"), 0.001, "is not what samples give"),
    ],
)
def test_a_document_that_was_edited_by_hand_is_refused(
    tmp_path: Path, plant: Plant, place: tuple[Any, ...], value: Any, told: str
) -> None:
    document = plant({"speed": [{"samples": [1.0, 2.0, 4.0], "comparators": {"bare": [1.5] * 3}}]})
    save(document, tmp_path / "baseline-a.json")
    assert pages.committed(tmp_path) == {"baseline-a": document}
    plain = document.model_dump(mode="json", by_alias=True)
    inner = plain["rows"][0]
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    save(Document.model_validate(plain), tmp_path / "baseline-a.json")
    with pytest.raises(pages.NotHeld, match=told):
        pages.committed(tmp_path)


def test_every_committed_result_is_borne_out_and_can_be_shown() -> None:
    named = pages.committed()
    for where, text in pages.pages(named).items():
        pages.check(where, html(text), named)


def test_a_smoke_run_is_never_shown(tmp_path: Path, plant: Plant) -> None:
    save(plant({"speed": [{"samples": [1.0]}]}, smoke=True), tmp_path / "baseline-a.json")
    with pytest.raises(pages.NotHeld, match="no basis"):
        pages.committed(tmp_path)


def test_the_method_is_the_docstring_of_the_scenarios_own_file(
    tmp_path: Path, plant: Plant
) -> None:
    document = plant({"speed": [{"samples": [1.0, 2.0]}]})
    (tmp_path / "speed.py").write_text('"""By `a_new*` way <b>of* it."""\n')
    markup = made(tmp_path, document)["benchmarks/performance.md"]
    page = text_of(markup)
    assert "speed.py): By a_new* way <b>of* it." in page
    assert "<code>a_new*</code>" in markup
    assert "Method as it was stated when this ran: by measuring" in page
    (tmp_path / "speed.py").write_text('"""by\nmeasuring"""\n')
    again = text_of(made(tmp_path, document)["benchmarks/performance.md"])
    assert "when this ran" not in again


def test_a_scenario_without_results_is_named(tmp_path: Path, plant: Plant) -> None:
    (tmp_path / "later.py").write_text('"""How."""\n')
    page = text_of(made(tmp_path, plant({"speed": [{"samples": [1.0]}]}))["benchmarks/index.md"])
    assert "Not in any committed result yet: later." in page


def test_without_any_results_the_pages_say_how_to_get_some(tmp_path: Path) -> None:
    for text in pages.pages({}, tmp_path).values():
        assert "No results are committed yet" in text


def test_several_machines_stand_beside_each_other(tmp_path: Path, plant: Plant) -> None:
    one, other = (plant({"speed": [{"samples": [value]}]}) for value in (1.0, 7.0))
    page = html(pages.pages({"a": one, "b": other}, tmp_path)["benchmarks/performance.md"])
    pages.check("p", page, {"a": one, "b": other})
    assert page.index("speed on a") < page.index("<td>1</td>")
    assert page.index("<td>1</td>") < page.index("speed on b")
    assert page.index("speed on b") < page.index("<td>7</td>")


def test_what_belongs_to_another_target_is_not_shown_as_missing(
    tmp_path: Path, plant: Plant
) -> None:
    """A document of one target says nothing of scenarios that only run on another."""
    local = plant({"speed": [{"samples": [1.0]}]})
    row = local.rows[0].model_dump() | {
        "samples": [], "median": None, "p10": None, "p90": None, "repeats": 0,
        "reason": f"{NOT_ON_TARGET} compose",
    }  # fmt: skip
    composed = local.model_copy(update={"rows": [Row.model_validate(row)]})
    for text in pages.pages({"a": local, "b": composed}, tmp_path).values():
        assert "no number" not in text
        assert "speed on b" not in html(text)
    (tmp_path / "speed.py").write_text('"""How."""\n')
    index = text_of(pages.pages({"b": composed}, tmp_path)["benchmarks/index.md"])
    assert "Not in any committed result yet: `speed`." in index


@pytest.mark.parametrize(
    "variants",
    [
        ["8 MB", "512 MB", "2 GB"],
        ["512 KiB, stall", "8 MiB, stall", "1 GiB, stall"],
        ["100 tasks", "1000 tasks", "10000 tasks"],
        ["16 x 500 ms, parallel=1", "6 x 2 s, parallel=1", "4 x 1 min, parallel=1"],
    ],
)
def test_sizes_make_a_curve_smallest_first(plant: Plant, variants: list[str]) -> None:
    reports = [{"samples": [1.0], "variant": name} for name in ("other", *reversed(variants))]
    groups = plots.curves(plant({"stall": reports}).rows)
    assert [[row.variant for row in group] for group in groups] == [variants]


def test_two_sizes_or_two_quantities_make_no_curve(plant: Plant) -> None:
    names = ("8 MB", "9 MB", "8 tasks", "8 MB, durable")
    reports = [{"samples": [1.0], "variant": name} for name in names]
    assert plots.curves(plant({"stall": reports}).rows) == []


def test_a_picture_says_in_words_what_it_shows(plant: Plant) -> None:
    document = plant(
        {
            "speed": [
                {
                    "samples": [1.0, 2.0, 3.0],
                    "comparators": {"<bare>": [5.0, 6.0, 7.0]},
                    "figures": [series("phase: a", "s", [0.5]), series("phase: b", "s", [1.5])],
                }
            ]
        }
    )
    spread, phases = plots.pictures(document.rows)
    for picture in (spread, phases):
        assert picture.count('role="img" aria-label="') == len(plots.WIDTHS)
        assert "http" not in picture
        assert "\n" not in picture
    assert "&lt;bare&gt;: median 6 s (p10 5.2, p90 6.8, 3 samples)" in spread
    assert spread.count("<circle") == 6 * len(plots.WIDTHS)
    assert "b: 1.5 s (75%)" in phases


def test_what_has_no_spread_or_no_samples_makes_no_picture(plant: Plant) -> None:
    document = plant({"speed": [{"samples": [7.0, 7.0]}, {"samples": [], "variant": "gone"}]})
    assert plots.pictures(document.rows) == []


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.lists(st.floats(-1e12, 1e12, allow_subnormal=False), min_size=2, max_size=5),
    st.lists(st.floats(1e-9, 1e12), min_size=3, max_size=3),
)
def test_every_mark_lies_on_the_canvas(plant: Plant, some: list[float], more: list[float]) -> None:
    """Negative, tiny, huge and nearly equal values: an axis has room for all of them."""
    sized = [{"samples": [value], "variant": f"{n} MB"} for n, value in enumerate(more, start=1)]
    drawn = plots.pictures(plant({"a": [{"samples": some}], "b": sized}).rows)
    for picture in drawn:
        for attribute in ("cx", "cy", "x1", "x2", "y1", "y2"):
            for found in picture.split(f' {attribute}="')[1:]:
                assert -1 <= float(found.split('"')[0]) <= max(plots.WIDTHS.values())


def test_a_share_is_borne_out_by_its_outcomes_and_by_nothing_else(
    bench: Callable[..., Bench], plant: Plant
) -> None:
    here = bench()
    shares.report(here, [True] * 19 + [False], {"naive": [False] * 20})
    document = plant({"speed": [{"samples": [1.0]}]}).model_copy(update={"rows": here.rows})
    assert audit.documents({"a": document}) == []
    [row] = here.rows
    hidden = [each for each in row.series if each.name != shares.outcomes_of(shares.OURS)]
    edited = row.model_copy(update={"series": hidden})
    problems = audit.documents({"a": document.model_copy(update={"rows": [edited]})})
    assert "is not what samples give" in problems[0]
