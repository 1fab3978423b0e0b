"""What a run leaves for people and for CI: verdict.json, report.html, junit.xml, metrics.prom."""

import json
from collections.abc import Iterable
from pathlib import Path
from statistics import median

from chaos import around, exposition, timeline
from chaos.cited import Events, anchor_of
from chaos.drawing.bands import Band, bands
from chaos.history import History, items, mapping
from chaos.judge import Judgement
from chaos.junit import junit
from chaos.model import Finding, JsonValue, Verdict
from chaos.page import badge, folded, safe, scrolled, table, whole
from chaos.words import counted

WORST_FIRST = (Verdict.VIOLATED, Verdict.UNKNOWN, Verdict.VALID)
REPEAT = "python -m chaos run"
MOST_TOLD = 400
MOST_NUMBERS = 8
MOST_LOG_CHARACTERS = 400_000
NO_LOGS = around.Logs({}, {})


def write(folder: Path, judgement: Judgement, history: History) -> None:
    """Write the files, the verdict first."""
    verdict = json.dumps(judgement.to_json(), allow_nan=False, indent=1) + "\n"
    logs = around.read(folder / "logs", history, bands(history))
    for name, content in (
        ("verdict.json", verdict),
        ("junit.xml", junit(judgement)),
        (exposition.NAME, exposition.exposition([exposition.measured(judgement, history)])),
        ("report.html", html(judgement, history, logs)),
    ):
        draft = folder / f".{name}.draft"
        draft.write_text(content, encoding="utf-8")
        draft.replace(folder / name)


def html(judgement: Judgement, history: History, logs: around.Logs = NO_LOGS) -> str:
    """Return the report: one file, nothing to load."""
    events = Events(history)
    faults = _fault_table(judgement, events) if judgement.findings else ""
    findings = _finding_table(judgement, events, history) if judgement.findings else ""
    sections = [
        f"<h1>{safe(judgement.experiment)} {badge(judgement.outcome)}</h1>",
        *_story(judgement, history),
        _figures(judgement) if judgement.findings else "",
        _time_line(history, logs),
        f"<h2>Faults</h2>{faults}" if faults else "",
        f"<h2>Invariants</h2>{findings}" if findings else "",
        _said_around(bands(history), logs),
        "<h2>Left on the machine</h2>" + _clean(judgement),
        _checkpoint_table(history),
        _event_list(events, history) if judgement.findings else "",
        "<h2>Plan</h2>" + folded("schedule, jobs and image digests", dict(history.one("plan"))),
        _notes(history),
        "<h2>Run it again</h2><p>The same seed gives the same plan:</p>"
        f"<pre>{safe(again(judgement, history))}</pre>",
    ]
    return whole(f"{judgement.experiment}: {judgement.outcome}", sections)


def _story(judgement: Judgement, history: History) -> list[str]:
    """Say what was done, when, and what became of it."""
    plan, began = history.one("plan"), history.records[0].wall[:19].replace("T", " ")
    runs = history.of("run")
    about = [
        f"{safe(began)} UTC",
        *(f"<code>{safe(str(run['run_id']))}</code>" for run in runs[:1]),
        f"seed {judgement.seed}",
        counted(int(str(plan["workers"])), "worker"),
    ]
    if plan.get("planted"):
        about.append(f"with the planted bug <code>{safe(str(plan['planted']))}</code>")
    summary = str(plan.get("summary") or "")
    told_reason = safe(judgement.reason or "")
    return [
        f'<p class="lead">What it does: {safe(summary)}.</p>' if summary else "",
        f'<p class="dim">{" · ".join(about)}</p>',
        f"<p><b>{safe(judgement.end.replace('_', ' '))}:</b> {told_reason}</p>"
        if told_reason
        else "",
        *(
            f"<p>The last lines of {safe(name)}:</p><pre>{safe(tail)}</pre>"
            for name, tail in judgement.log_tails.items()
        ),
    ]


def again(judgement: Judgement, history: History) -> str:
    """Return the command that runs the same plan again."""
    plan = history.one("plan")
    count = f" --count {plan['count']}" if plan.get("count") else ""
    planted = f" --planted {plan['planted']}" if plan.get("planted") else ""
    return (
        f".venv/bin/{REPEAT} {judgement.experiment} --seed {judgement.seed} "
        f"--workers {plan['workers']}{count}{planted}"
    )


def _figures(judgement: Judgement) -> str:
    titles = {
        "mttd_s": "mttd, s: from the fault until the lost task could be claimed again",
        "reclaim_s": "reclaimed, s: until another attempt claimed it",
        "mttr_s": "mttr, s: until a later attempt made its first step",
        "goodput": "goodput: useful / executed steps*",
    }
    figures = {name: _short(judgement.figures.get(name)) for name in titles}
    if figures["goodput"] != "-":
        figures["goodput"] = f"≤ {figures['goodput']}"
    cells = [
        f"<div><b>{safe(figures[name])}</b>{safe(title)}</div>" for name, title in titles.items()
    ]
    note = "* Of the steps heard of: what a lost holder did unheard is not counted."
    others = {name: value for name, value in judgement.figures.items() if name not in titles}
    more = folded("all that was counted", others) if others else ""
    return f'<div class="figures">{"".join(cells)}</div><small>{note}</small>{more}'


def _time_line(history: History, logs: around.Logs) -> str:
    wide, narrow = (timeline.render(history, width, logs.unanswered) for width in (1000, 380))
    if not wide:
        return ""
    key = "".join(
        f'<span class="{tone}">{safe(node)}</span>'
        for node, tone in timeline.holders(history).items()
    )
    marks = timeline.told(history)
    told_marks = table(
        ("after", "where", "what", "detail"),
        (
            (f"{after_s:.1f} s", safe(mark.lane), safe(mark.label), safe(mark.detail))
            for after_s, mark in marks[:MOST_TOLD]
        ),
    )
    more = counted(len(marks) - MOST_TOLD, "more mark") if len(marks) > MOST_TOLD else ""
    return (
        f'<h2>Time line</h2><p class="key">Each bar is a lease, in the colour of its holder: '
        f"{key} Faults are bands, from firing to undo. Strokes below a bar are heartbeats heard; "
        f'red ones had no answer.</p><div class="wide">{wide}</div>'
        f'<div class="narrow">{narrow}</div><details><summary>the same in words</summary>'
        f"{told_marks}{more}</details>"
    )


def told(value: JsonValue) -> str:
    """Return a figure for people; a dash where there is none."""
    if isinstance(value, list):
        return ", ".join(told(each) for each in value) or "-"
    return f"{value:.2f}" if isinstance(value, float) else "-" if value is None else str(value)


def _short(value: JsonValue) -> str:
    """Return a figure for people; of many numbers their median and how far they go."""
    listed = value if isinstance(value, list) else []
    numbers = [float(each) for each in listed if isinstance(each, int | float)]
    if len(numbers) <= MOST_NUMBERS:
        return told(value)
    low, high = min(numbers), max(numbers)
    return f"{median(numbers):.2f} (median of {len(numbers)}, {low:.2f} to {high:.2f})"


def _fault_table(judgement: Judgement, events: Events) -> str:
    return table(
        ("fault", "kind", "target", "landed", "evidence"),
        (
            (
                events.linked(str(fault["id"])),
                safe(str(fault["kind"])),
                safe(str(fault["target"])),
                badge(str(fault["landed"])),
                folded(
                    str(mapping(fault["evidence"]).get("reason") or "receipt"), fault["evidence"]
                ),
            )
            for fault in judgement.faults
        ),
    )


def _finding_table(judgement: Judgement, events: Events, history: History) -> str:
    return table(
        ("invariant", "verdict", "why"),
        (
            (
                f"<b>{safe(found.name)}</b><small>{safe(found.meaning)}</small>",
                badge(found.verdict),
                events.linked(found.detail) + _decided(found, events, history),
            )
            for found in sorted(judgement.findings, key=lambda f: WORST_FIRST.index(f.verdict))
        ),
    )


def _decided(found: Finding, events: Events, history: History) -> str:
    """Return the link to the record with which the history became violated."""
    if found.decided_at is None or found.decided_at >= len(history.records):
        return ""
    record = history.records[found.decided_at]
    link = events.link(anchor_of(record), f"record {record.seq} ({record.kind})")
    return f"<small>Violated as soon as {link} was there.</small>"


def _said_around(found: Iterable[Band], logs: around.Logs) -> str:
    """Return what the logs said around each fault, until there is no more room."""
    parts: list[str] = []
    shown = [band for band in found if logs.around.get(band.fault_id)]
    for band in shown:
        if sum(map(len, parts)) > MOST_LOG_CHARACTERS:
            parts.append(f"<p>{counted(len(shown) - len(parts), 'fault')} more: see logs/.</p>")
            break
        said = "".join(
            f"<h3>{safe(name)}</h3>" + scrolled(f"{name} around {band.fault_id}", _lines(lines))
            for name, lines in logs.around[band.fault_id].items()
        )
        parts.append(f"<details><summary>{safe(band.told)}</summary>{said}</details>")
    return f"<h2>Logs around each fault</h2>{''.join(parts)}" if parts else ""


def _lines(lines: Iterable[around.Said]) -> str:
    said = "\n".join(f"{line.after_s:+8.3f} s  {safe(line.line)}" for line in lines)
    return f"<pre>{said}</pre>"


def _event_list(events: Events, history: History) -> str:
    """Return the list that all links lead to; it comes last, when all of them are made."""
    rows, count = events.rows()
    if not rows:
        return ""
    began_ns = min(record.t_ns for record in history.records)
    listed = table(
        ("after", "what", "about", "more"),
        (
            (
                f"{(row.at_ns - began_ns) / 1e9:.3f} s",
                safe(row.what),
                f"<code>{safe(row.about)}</code>",
                f"<code>{safe(row.detail)}</code>",
            )
            for row in rows
        ),
        [row.anchor for row in rows],
    )
    left = f"{len(rows)} of {count}; the others stand in history.jsonl" if len(rows) < count else ""
    about = f"<p>{left or counted(count, 'row')}.</p>"
    return f"<h2>Events</h2>{about}{scrolled('Events', listed)}"


def _clean(judgement: Judgement) -> str:
    counts = [f"{told(count)} {name}" for name, count in judgement.clean.items()]
    return f"<p>{safe(', '.join(counts))}</p>"


def _checkpoint_table(history: History) -> str:
    last = {str(tree["role"]): tree for tree in history.of("checkpoints")}
    if not last:
        return ""
    return "<h2>Checkpoints at the end</h2>" + table(
        ("job", "step", "state", "attempt", "reason"),
        (
            (
                safe(role),
                safe(str(entry.get("step"))),
                safe(str(entry.get("state"))),
                f"<code>{safe(str(entry.get('attempt_id')))}</code>",
                safe(str(entry.get("reason") or "-")),
            )
            for role, tree in sorted(last.items())
            for entry in items(tree.get("checkpoints"))
        ),
    )


def _notes(history: History) -> str:
    notes = [folded(str(note.get("text", "note")), dict(note)) for note in history.of("note")]
    return "<h2>Notes</h2>" + "".join(notes) if notes else ""
