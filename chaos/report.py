"""What a run leaves for people and for CI: verdict.json, report.html and junit.xml."""

import json
from html import escape
from pathlib import Path
from xml.etree import ElementTree as ET

from chaos import timeline
from chaos.history import History, items, mapping
from chaos.judge import Judgement
from chaos.model import JsonValue, Verdict
from chaos.page import badge, folded, table, whole
from chaos.words import counted

WORST_FIRST = (Verdict.VIOLATED, Verdict.UNKNOWN, Verdict.VALID)
REPEAT = "python -m chaos run"


def write(folder: Path, judgement: Judgement, history: History) -> None:
    """Write the three files, the verdict first."""
    verdict = json.dumps(judgement.to_json(), allow_nan=False, indent=1) + "\n"
    for name, content in (
        ("verdict.json", verdict),
        ("junit.xml", junit(judgement)),
        ("report.html", html(judgement, history)),
    ):
        draft = folder / f".{name}.draft"
        draft.write_text(content, encoding="utf-8")
        draft.replace(folder / name)


def junit(judgement: Judgement) -> str:
    """Return the verdict as JUnit XML: violated is a failure, unknown is an error."""
    suite = ET.Element("testsuite", name=_xml_text(f"chaos.{judgement.experiment}"))
    counts = {"failure": 0, "error": 0}
    for found in judgement.findings:
        case = ET.SubElement(suite, "testcase", classname=suite.attrib["name"], name=found.name)
        if found.verdict is not Verdict.VALID:
            kind = "failure" if found.verdict is Verdict.VIOLATED else "error"
            counts[kind] += 1
            ET.SubElement(case, kind, message=_xml_text(found.detail), type=found.verdict)
    if judgement.end != "completed":
        case = ET.SubElement(
            suite, "testcase", classname=suite.attrib["name"], name="the run itself"
        )
        ET.SubElement(case, "error", message=_xml_text(judgement.reason or judgement.end))
        counts["error"] += 1
    suite.set("tests", str(len(suite)))
    suite.set("failures", str(counts["failure"]))
    suite.set("errors", str(counts["error"]))
    properties = ET.SubElement(suite, "properties")
    ET.SubElement(properties, "property", name="seed", value=str(judgement.seed))
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(suite, encoding="unicode") + "\n"
    )


def _xml_text(value: str) -> str:
    """Return text without the characters that XML 1.0 cannot hold."""
    return "".join(c if c in "\t\n\r" or c.isprintable() else "\ufffd" for c in value)


def html(judgement: Judgement, history: History) -> str:
    """Return the report: one file, nothing to load."""
    sections = [
        f"<h1>{escape(judgement.experiment)} {badge(judgement.outcome)}</h1>",
        *_story(judgement, history),
        _figures(judgement) if judgement.findings else "",
        _time_line(history),
        "<h2>Faults</h2>" + _fault_table(judgement) if judgement.findings else "",
        "<h2>Invariants</h2>" + _finding_table(judgement) if judgement.findings else "",
        "<h2>Left on the machine</h2>" + _clean(judgement),
        _checkpoint_table(history),
        "<h2>Plan</h2>" + folded("schedule, jobs and image digests", dict(history.one("plan"))),
        _notes(history),
        "<h2>Run it again</h2><p>The same seed gives the same plan:</p>"
        f"<pre>{escape(again(judgement, history))}</pre>",
    ]
    return whole(f"{judgement.experiment}: {judgement.outcome}", sections)


def _story(judgement: Judgement, history: History) -> list[str]:
    """Say what was done, when, and what became of it."""
    plan, began = history.one("plan"), history.records[0].wall[:19].replace("T", " ")
    runs = history.of("run")
    about = [
        f"{began} UTC",
        *(f"<code>{escape(str(run['run_id']))}</code>" for run in runs[:1]),
        f"seed {judgement.seed}",
        counted(int(str(plan["workers"])), "worker"),
    ]
    if plan.get("planted"):
        about.append(f"with the planted bug <code>{escape(str(plan['planted']))}</code>")
    summary = str(plan.get("summary") or "")
    told_reason = escape(judgement.reason or "")
    return [
        f'<p class="lead">What it does: {escape(summary)}.</p>' if summary else "",
        f'<p class="dim">{" · ".join(about)}</p>',
        f"<p><b>{escape(judgement.end.replace('_', ' '))}:</b> {told_reason}</p>"
        if told_reason
        else "",
        *(
            f"<p>The last lines of {escape(name)}:</p><pre>{escape(tail)}</pre>"
            for name, tail in judgement.log_tails.items()
        ),
    ]


def again(judgement: Judgement, history: History) -> str:
    """Return the command that runs the same plan again."""
    plan = history.one("plan")
    planted = f" --planted {plan['planted']}" if plan.get("planted") else ""
    return (
        f".venv/bin/{REPEAT} {judgement.experiment} --seed {judgement.seed} "
        f"--workers {plan['workers']}{planted}"
    )


def _figures(judgement: Judgement) -> str:
    titles = {
        "mttd_s": "mttd, s: from the fault until the lost task could be claimed again",
        "reclaim_s": "reclaimed, s: until another attempt claimed it",
        "mttr_s": "mttr, s: until a later attempt made its first step",
        "goodput": "goodput: useful / executed steps*",
    }
    figures = {name: told(judgement.figures.get(name)) for name in titles}
    if figures["goodput"] != "-":
        figures["goodput"] = f"≤ {figures['goodput']}"
    cells = [
        f"<div><b>{escape(figures[name])}</b>{escape(title)}</div>"
        for name, title in titles.items()
    ]
    note = "* Of the steps heard of: what a lost holder did unheard is not counted."
    others = {name: value for name, value in judgement.figures.items() if name not in titles}
    more = folded("all that was counted", others) if others else ""
    return f'<div class="figures">{"".join(cells)}</div><small>{note}</small>{more}'


def _time_line(history: History) -> str:
    wide, narrow = (timeline.render(history, width) for width in (1000, 380))
    if not wide:
        return ""
    key = "".join(
        f'<span class="{tone}">{escape(node)}</span>'
        for node, tone in timeline.holders(history).items()
    )
    told_marks = table(
        ("after", "where", "what", "detail"),
        (
            (f"{after_s:.1f} s", escape(mark.lane), escape(mark.label), escape(mark.detail))
            for after_s, mark in timeline.told(history)
        ),
    )
    return (
        f'<h2>Time line</h2><p class="key">Each bar is a lease, in the colour of its holder: '
        f'{key}</p><div class="wide">{wide}</div><div class="narrow">{narrow}</div>'
        f"<details><summary>the same in words</summary>{told_marks}</details>"
    )


def told(value: JsonValue) -> str:
    """Return a figure for people; a dash where there is none."""
    if isinstance(value, list):
        return ", ".join(told(each) for each in value) or "-"
    return f"{value:.2f}" if isinstance(value, float) else "-" if value is None else str(value)


def _fault_table(judgement: Judgement) -> str:
    return table(
        ("fault", "kind", "target", "landed", "evidence"),
        (
            (
                escape(str(fault["id"])),
                escape(str(fault["kind"])),
                escape(str(fault["target"])),
                badge(str(fault["landed"])),
                folded(
                    str(mapping(fault["evidence"]).get("reason") or "receipt"), fault["evidence"]
                ),
            )
            for fault in judgement.faults
        ),
    )


def _finding_table(judgement: Judgement) -> str:
    return table(
        ("invariant", "verdict", "why"),
        (
            (
                f"<b>{escape(found.name)}</b><small>{escape(found.meaning)}</small>",
                badge(found.verdict),
                escape(found.detail),
            )
            for found in sorted(judgement.findings, key=lambda f: WORST_FIRST.index(f.verdict))
        ),
    )


def _clean(judgement: Judgement) -> str:
    counts = [f"{told(count)} {name}" for name, count in judgement.clean.items()]
    return f"<p>{escape(', '.join(counts))}</p>"


def _checkpoint_table(history: History) -> str:
    last = {str(tree["role"]): tree for tree in history.of("checkpoints")}
    if not last:
        return ""
    return "<h2>Checkpoints at the end</h2>" + table(
        ("job", "step", "state", "attempt", "reason"),
        (
            (
                escape(role),
                escape(str(entry.get("step"))),
                escape(str(entry.get("state"))),
                f"<code>{escape(str(entry.get('attempt_id')))}</code>",
                escape(str(entry.get("reason") or "-")),
            )
            for role, tree in sorted(last.items())
            for entry in items(tree.get("checkpoints"))
        ),
    )


def _notes(history: History) -> str:
    notes = [folded(str(note.get("text", "note")), dict(note)) for note in history.of("note")]
    return "<h2>Notes</h2>" + "".join(notes) if notes else ""
