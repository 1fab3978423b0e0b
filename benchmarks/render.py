"""Markdown tables from a committed document: they hold no figure that the document does not."""

from collections.abc import Iterable, Sequence

from benchmarks.compare import Change
from benchmarks.schema import Document, Host, Row, Section

NO_NUMBER = "-"


def render(document: Document) -> str:
    """Return the page: the machine, the summary of each section, then each scenario with notes."""
    blocks = [_host(document), "## Summary"]
    for section in Section:
        rows = [row for row in document.rows if row.section is section]
        if rows:
            blocks += [f"### {section.value.capitalize()}", summary(rows)]
    for name in dict.fromkeys(row.scenario for row in document.rows):
        blocks += _scenario([row for row in document.rows if row.scenario == name])
    return "\n\n".join(blocks) + "\n"


def summary(rows: Iterable[Row]) -> str:
    """Return one line a row."""
    heads = ("scenario", "median", "p10", "p90", "unit", "repeats", "comparators")
    return table(heads, [_summary_cells(row) for row in rows])


def changes(found: Iterable[Change]) -> str:
    """Return what `compare` found, one line a figure."""
    heads = ("figure", "before", "after", "unit", "finding", "detail")
    lines = [
        (c.name, number(c.before), number(c.after), c.unit, c.finding, c.detail) for c in found
    ]
    return table(heads, lines)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a markdown table; text cannot break out of its cell."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)


def number(value: float | None) -> str:
    """Return a figure with four significant digits, signed as it is."""
    return NO_NUMBER if value is None else f"{value:.4g}"


def _cell(text: str) -> str:
    return text.replace("|", r"\|").replace("\n", " ")


def _summary_cells(row: Row) -> tuple[str, ...]:
    name = f"{row.scenario} ({row.variant})" if row.variant else row.scenario
    others = ", ".join(f"{key} {number(value)}" for key, value in row.comparators.items())
    figures = (row.median, row.p10, row.p90)
    return (name, *map(number, figures), row.unit, str(row.repeats), others or NO_NUMBER)


def _host(document: Document) -> str:
    host: Host = document.host
    torch = host.torch or "none"
    lines = [
        f"Measured on: {host.os}, kernel {host.kernel}, {host.cpu}, {host.cores} cores, "
        f"{host.ram_gb:g} GB RAM, Python {host.python}, torch {torch}, "
        f"flashruntime {host.flashruntime} ({host.commit or 'unknown revision'}), in {host.place}, "
        f"load {NO_NUMBER if host.load_1m is None else host.load_1m} at the start, "
        f"{document.started_at:%Y-%m-%d %H:%M} UTC.",
        f"Reproduce with: `{document.command}`",
    ]
    if document.smoke:
        lines.append("**A smoke run: one repeat of everything, no basis for any claim.**")
    lines += [f"**{broken.scenario} broke:** {broken.error}" for broken in document.broken]
    lines += document.notes
    return "\n\n".join(lines)


def _scenario(rows: Sequence[Row]) -> list[str]:
    first = rows[0]
    blocks = [
        f"## {first.scenario}",
        f"**Hypothesis:** {first.hypothesis}",
        f"**Method:** {' '.join(first.method.split())}",
    ]
    if first.interval:
        within = first.interval
        resolution = f", known to {within.resolution_s:g} s" if within.resolution_s else ""
        blocks.append(f"**Measured:** from {within.start} to {within.end}{resolution}.")
    for row in rows:
        blocks += _row(row)
    return blocks


def _row(row: Row) -> list[str]:
    title = f"**{row.variant or row.scenario}:** "
    if row.median is None:
        blocks = [f"{title}no number: {row.reason}"]
    else:
        spread = f"p10 {number(row.p10)}, p90 {number(row.p90)}, {row.repeats} repeats"
        blocks = [f"{title}{number(row.median)} {row.unit} ({spread})"]
    if row.series:
        heads = ("beside it", "median", "p10", "p90", "unit", "ours against it")
        findings = {each.comparator: each.finding for each in row.comparisons}
        lines = [
            (s.name, number(s.median), number(s.p10), number(s.p90), s.unit,
             findings.get(s.name, NO_NUMBER))
            for s in row.series
        ]  # fmt: skip
        blocks.append(table(heads, lines))
    if row.notes:
        blocks.append("\n".join(f"- {' '.join(note.split())}" for note in row.notes))
    return blocks
