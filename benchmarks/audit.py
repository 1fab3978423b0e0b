"""Finds figures that no measurement stands behind: in documents, and in the tables of a page.

A table with a column `median` is one of results; each of its lines must be as some document has it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from html.parser import HTMLParser

from benchmarks import shares, stats
from benchmarks.scenario import compared
from benchmarks.schema import Comparison, Document, Row, Series

LEAST_DIGITS = 4
AGAINST = "ours against it"
NUMBERS = ("median", "p10", "p90")
NO_NUMBER = ("", "-")
Line = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Held:
    """A figure that a document has, under the name that tables call it by."""

    name: str
    unit: str
    numbers: Mapping[str, float | None]
    count: int
    comparators: Mapping[str, float]
    finding: str = "-"


def documents(named: Mapping[str, Document]) -> list[str]:
    """Return what in documents their own samples do not bear out; nothing where all is well."""
    problems = []
    for name, document in named.items():
        if document.smoke:
            problems.append(f"{name}: a smoke run is no basis for any claim; measure without it")
        for row in document.rows:
            where = f"{name}: {_name(row)}"
            problems += _summaries(where, row)
            for series in row.series:
                problems += _summaries(f"{where}: {series.name}", series)
            medians = {series.name: series.median for series in row.series}
            problems += [
                f"{where}: the comparator {key!r} has {value:g}, which none of its samples gives"
                for key, value in row.comparators.items()
                if medians.get(key) != value
            ]
            problems += _findings(where, row)
    return problems


def page(html: str, named: Mapping[str, Document]) -> list[str]:
    """Return the lines of a page's tables of results that no document holds."""
    held: dict[str, list[Held]] = {}
    for document in named.values():
        for figure in _figures(document):
            held.setdefault(figure.name, []).append(figure)
    problems = []
    for line in _result_lines(html):
        name = next(iter(line.values()))
        if not any(_agrees(line, figure) for figure in held.get(name, ())):
            shown = ", ".join(f"{head} {cell}" for head, cell in list(line.items())[1:] if cell)
            problems.append(f"no result file holds {name!r} with {shown}")
    return problems


def shows(text: str, value: float | None) -> bool:
    """Whether a text is that number, rounded to no fewer than four significant digits."""
    if value is None or text in NO_NUMBER:
        return value is None and text in NO_NUMBER
    try:
        shown = Decimal(text.replace(",", "").replace("−", "-"))  # noqa: RUF001 (a minus sign)
    except InvalidOperation:
        return False
    digits = max(LEAST_DIGITS, len(shown.as_tuple().digits))
    return shown == Decimal(f"{value:.{digits}g}")


def _summaries(where: str, figure: Row | Series) -> list[str]:
    said = (figure.median, figure.p10, figure.p90)
    if not figure.samples:
        return [] if said == (None, None, None) else [f"{where}: numbers without samples"]
    summary = stats.summarise(figure.samples)
    given = (summary.median, summary.p10, summary.p90)
    return [
        f"{where}: {name} is {number}, its samples give {value:g}"
        for name, number, value in zip(NUMBERS, said, given, strict=True)
        if number is None or abs(number - value) > 1e-9 * max(abs(value), abs(number))
    ]


def _findings(where: str, row: Row) -> list[str]:
    """Return the comparisons that a second computation from the samples does not give."""
    samples = {series.name: series.samples for series in row.series}
    problems = []
    for said in row.comparisons:
        theirs = samples.get(said.comparator)
        again = shares.compared_again(row, said.comparator)
        if again is None and theirs and row.samples:
            again = compared(said.comparator, row.samples, theirs, paired=said.paired)
        if again is None or not _same_finding(said, again):
            problems.append(
                f"{where}: {said.comparator}: {said.finding!r} is not what samples give"
            )
    return problems


def _same_finding(one: Comparison, other: Comparison) -> bool:
    numbers = [(each.difference, each.p_value, each.ci_low, each.ci_high) for each in (one, other)]
    return one.finding == other.finding and all(
        abs(a - b) <= 1e-9 * max(abs(a), abs(b)) for a, b in zip(*numbers, strict=True)
    )


def _figures(document: Document) -> Iterator[Held]:
    for row in document.rows:
        yield _held(_name(row), row, comparators=row.comparators)
        findings = {each.comparator: each.finding for each in row.comparisons}
        for series in row.series:
            yield _held(series.name, series, finding=findings.get(series.name, "-"))


def _held(
    name: str,
    figure: Row | Series,
    *,
    comparators: Mapping[str, float] | None = None,
    finding: str = "-",
) -> Held:
    numbers = {"median": figure.median, "p10": figure.p10, "p90": figure.p90}
    unit = " ".join(figure.unit.split())
    count = len(figure.samples)
    return Held(" ".join(name.split()), unit, numbers, count, comparators or {}, finding)


def _name(row: Row) -> str:
    return f"{row.scenario} ({row.variant})" if row.variant else row.scenario


def _agrees(line: Line, held: Held) -> bool:
    checks = [shows(line[head], held.numbers[head]) for head in NUMBERS if head in line]
    checks += [line[head] == str(held.count) for head in ("n", "repeats") if head in line]
    if "unit" in line:
        checks.append(line["unit"] == held.unit)
    if AGAINST in line:
        checks.append((line[AGAINST] or "-") == " ".join(held.finding.split()))
    if "comparators" in line:
        checks.append(_same_comparators(line["comparators"], held.comparators))
    return all(checks)


def _same_comparators(text: str, held: Mapping[str, float]) -> bool:
    rest = "" if text in NO_NUMBER else text
    for name, value in held.items():
        found = re.match(rf"{re.escape(' '.join(name.split()))} (\S+?)(?:, |$)", rest)
        if found is None or not shows(found[1], value):
            return False
        rest = rest[found.end() :]
    return not rest


def _result_lines(html: str) -> Iterator[Line]:
    reader = _Tables()
    reader.feed(html)
    for table in reader.tables:
        heads = [head.lower() for head in table[0]] if table else []
        if "median" in heads:
            for cells in table[1:]:
                padded: Sequence[str] = [*cells, *[""] * (len(heads) - len(cells))]
                yield dict(zip(heads, padded, strict=False))


@dataclass(slots=True)
class _Text:
    parts: list[str] = field(default_factory=list)

    def joined(self) -> str:
        return " ".join("".join(self.parts).split())


class _Tables(HTMLParser):
    """Collects the text of every cell of every table, line by line."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: list[list[list[str]]] = []
        self._cell: _Text | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Open a table, a line or a cell."""
        del attrs
        if tag == "table":
            self.tables.append([])
        elif tag == "tr" and self.tables:
            self.tables[-1].append([])
        elif tag in {"td", "th"}:
            self._cell = _Text()

    def handle_endtag(self, tag: str) -> None:
        """Close a cell."""
        if tag in {"td", "th"} and self._cell is not None and self.tables and self.tables[-1]:
            self.tables[-1][-1].append(self._cell.joined())
            self._cell = None

    def handle_data(self, data: str) -> None:
        """Keep text of a cell."""
        if self._cell is not None:
            self._cell.parts.append(data)
