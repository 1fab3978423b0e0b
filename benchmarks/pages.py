"""The benchmark pages of the documentation, made of the committed documents alone.

A scenario's method is the docstring of its own file; notes are shown word for word.
"""

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from benchmarks import audit, plots
from benchmarks.render import NO_NUMBER, number, table
from benchmarks.schema import (
    NOT_ON_TARGET,
    BenchError,
    Document,
    Host,
    Row,
    Section,
    Series,
    load,
)

RESULTS = Path(__file__).with_name("results")
SCENARIOS = Path(__file__).with_name("scenarios")
NOTHING_YET = "No results are committed yet. `make bench` measures a baseline on this machine."
COMMANDS = """```console
$ make bench                                   # all of it
$ make bench ARGS="--scenario submit_latency"  # one scenario
$ make bench ARGS=--smoke                      # once and small, for no claim
$ .venv/bin/python -m benchmarks compare A.json B.json
```"""
_SPECIAL = frozenset("\\`*_{}[]()<>#+-!|&~^=:.\"'$")
_LEADS = {
    Section.PERFORMANCE: "What the runtime costs: overheads against bare tools, in the same run.",
    Section.RESILIENCE: "What the runtime saves: faults are injected for real, and the outcome is "
    "counted or timed from what can be observed.",
}


class NotHeld(BenchError):
    """A page shows a figure that no result file holds."""


def committed(folder: Path = RESULTS) -> dict[str, Document]:
    """Return the baselines by name; NotHeld where one is not borne out by its own samples."""
    named = {path.stem: load(path) for path in sorted(folder.glob("baseline-*.json"))}
    if problems := audit.documents(named):
        raise NotHeld("\n".join(problems))
    return named


def check(where: str, html: str, named: Mapping[str, Document]) -> None:
    """Raise NotHeld where a table of this page has a line of results that no document holds."""
    if problems := audit.page(html, named):
        raise NotHeld("\n".join(f"{where}: {problem}" for problem in problems))


def pages(named: Mapping[str, Document], scenarios: Path = SCENARIOS) -> dict[str, str]:
    """Return the pages in markdown by their place."""
    made = {"benchmarks/index.md": _index(named, methods(scenarios))}
    for section in Section:
        made[f"benchmarks/{section}.md"] = _section(section, named, methods(scenarios))
    return made


def methods(folder: Path) -> dict[str, str]:
    """Return the docstring of every scenario file by the scenario's name."""
    return {
        path.stem: ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        for path in sorted(folder.glob("*.py"))
        if path.stem != "__init__"
    }


def verbatim(text: str) -> str:
    """Return text in one line that no markup can be read into."""
    return _escaped(" ".join(text.split()))


def _escaped(text: str) -> str:
    return "".join(f"&#{ord(c)};" if c in _SPECIAL else c for c in text)


def _prose(text: str) -> str:
    """Return text in which nothing but code between backticks is markup."""
    parts = re.split(r"(`[^`]+`)", " ".join(text.split()))
    spaced = (each if code % 2 else _escaped(each) for code, each in enumerate(parts))
    return "".join(spaced)


def _index(named: Mapping[str, Document], known: Mapping[str, str]) -> str:
    blocks = [
        "# Benchmarks",
        "These pages are made from the committed result files (`benchmarks/results/`) each time "
        "the site is built; a table that shows what no file holds ends the build. Figures that are "
        "small, zero or negative are shown as measured.",
        COMMANDS,
    ]
    for name, document in named.items():
        blocks += [f"## {verbatim(name)}", *_host(document)]
        for section in Section:
            rows = _rows(document, section)
            if rows:
                blocks += [f"### {section.capitalize()}", _LEADS[section], _summary(rows)]
    if not named:
        blocks.append(NOTHING_YET)
    measured = {
        row.scenario
        for document in named.values()
        for section in Section
        for row in _rows(document, section)
    }
    if missing := [name for name in known if name not in measured]:
        listed = ", ".join(f"`{name}`" for name in missing)
        blocks.append(f"Not in any committed result yet: {listed}.")
    return "\n\n".join(blocks) + "\n"


def _section(section: Section, named: Mapping[str, Document], known: Mapping[str, str]) -> str:
    blocks = [f"# {section.capitalize()}", _LEADS[section]]
    rows = {name: _rows(document, section) for name, document in named.items()}
    blocks += [_host(named[name])[0] for name, each in rows.items() if each]
    names = dict.fromkeys(row.scenario for each in rows.values() for row in each)
    for scenario in sorted(names):
        of_it = {
            name: [row for row in each if row.scenario == scenario] for name, each in rows.items()
        }
        found = {name: each for name, each in of_it.items() if each}
        blocks += _scenario(scenario, found, known.get(scenario))
    if not names:
        blocks.append(NOTHING_YET)
    return "\n\n".join(blocks) + "\n"


def _rows(document: Document, section: Section) -> list[Row]:
    """Return the rows of a section, without those that another target's document has."""
    return [
        row
        for row in document.rows
        if row.section is section and not (row.reason or "").startswith(NOT_ON_TARGET)
    ]


def _scenario(name: str, found: Mapping[str, Sequence[Row]], method: str | None) -> list[str]:
    first = next(iter(found.values()))[0]
    blocks = [
        f"## {verbatim(name)} {{ #{name} }}",
        f"**Hypothesis:** {verbatim(first.hypothesis)}",
    ]
    for document, rows in found.items():
        if len(found) > 1:
            blocks.append(f"### {verbatim(name)} on {verbatim(document)}")
        blocks += [_figures(rows), _better(rows)]
        blocks += plots.pictures(rows)
        blocks += _notes(rows)
    return blocks + _method(first, method)


def _method(row: Row, method: str | None) -> list[str]:
    said = " ".join((method or "").split())
    file = f"`benchmarks/scenarios/{row.scenario}.py`"
    blocks = [f"**Method** ({file}): {_prose(said)}"] if said else []
    if row.interval:
        within = row.interval
        resolution = f", known to {within.resolution_s:g} s" if within.resolution_s else ""
        between = f"from {within.start} to {within.end}{resolution}"
        blocks.append(f"**Time measured:** {verbatim(between)}.")
    if said != " ".join(row.method.split()):
        blocks.append(f"**Method as it was stated when this ran:** {_prose(row.method)}")
    return blocks


def _figures(rows: Sequence[Row]) -> str:
    heads = ["figure", "median", "p10", "p90", "n", "unit", audit.AGAINST]
    lines: list[tuple[str, ...]] = []
    for row in rows:
        lines.append((f"**{verbatim(_name(row))}**", *_numbers(row), NO_NUMBER))
        findings = {each.comparator: each.finding for each in row.comparisons}
        for each in row.series:
            against = verbatim(findings.get(each.name, NO_NUMBER))
            lines.append((verbatim(each.name), *_numbers(each), against))
    if all(line[-1] == NO_NUMBER for line in lines):
        heads, lines = heads[:-1], [line[:-1] for line in lines]
    return table(heads, lines)


def _numbers(figure: Row | Series) -> tuple[str, ...]:
    shown = (number(each) for each in (figure.median, figure.p10, figure.p90))
    return (*shown, str(len(figure.samples)), verbatim(figure.unit))


def _better(rows: Sequence[Row]) -> str:
    """Say which direction is good, by figure where they differ."""
    if len({row.better for row in rows}) == 1:
        return f"{rows[0].better.capitalize()} is better."
    return " ".join(f"{verbatim(_name(row))}: {row.better} is better." for row in rows)


def _notes(rows: Sequence[Row]) -> list[str]:
    told: dict[str, None] = {}
    for row in rows:
        missing = row.reason if row.median is None else None
        if missing:
            told[f"{_name(row)}: no number: {missing}"] = None
        told |= dict.fromkeys(note for note in row.notes if note != missing)
    return ["\n".join(f"- {verbatim(note)}" for note in told)] if told else []


def _summary(rows: Iterable[Row]) -> str:
    heads = ("figure", "median", "p10", "p90", "n", "unit", "comparators")
    lines = []
    for row in rows:
        others = ", ".join(
            f"{verbatim(name)} {number(value)}" for name, value in row.comparators.items()
        )
        link = f"[{verbatim(_name(row))}]({row.section}.md#{row.scenario})"
        lines.append((link, *_numbers(row), others or NO_NUMBER))
    return table(heads, lines)


def _host(document: Document) -> list[str]:
    host: Host = document.host
    load_1m = "unknown" if host.load_1m is None else f"{host.load_1m:g}"
    told = (
        f"{host.cpu}, {host.cores} cores, {host.ram_gb:g} GB RAM, {host.disk}, {host.os}, kernel "
        f"{host.kernel}, Python {host.python}, torch {host.torch or 'none'}, flashruntime "
        f"{host.flashruntime} at {host.commit or 'an unknown revision'}, {host.place}, load "
        f"{load_1m} at the start, {document.started_at:%Y-%m-%d %H:%M} UTC"
    )
    blocks = [f"Measured on {verbatim(told)}.", f"Again: `{document.command.replace('`', '')}`"]
    if not document.complete:
        blocks.append("**This run was interrupted: what was not measured by then is missing.**")
    blocks += [
        f"**{verbatim(broken.scenario)} broke:** {verbatim(broken.error)}"
        for broken in document.broken
    ]
    return blocks + [verbatim(note) for note in document.notes]


def _name(row: Row) -> str:
    return f"{row.scenario} ({row.variant})" if row.variant else row.scenario
