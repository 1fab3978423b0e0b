"""What a run leaves for people and for CI: verdict.json, report.html and junit.xml."""

import json
from collections.abc import Iterable
from html import escape
from pathlib import Path
from xml.etree import ElementTree as ET

from chaos import timeline
from chaos.history import History, items, mapping
from chaos.judge import Judgement
from chaos.model import JsonValue, Verdict

STYLE = """
:root { color-scheme: light dark; --ink:#1d2430; --dim:#5d6879; --line:#d8dde5; --page:#fff;
  --card:#f6f8fa; --good:#1a7f4b; --bad:#c0322b; --warn:#a86400; --span:#b9cdf0; }
@media (prefers-color-scheme: dark) { :root { --ink:#e4e8ee; --dim:#98a3b3; --line:#38414f;
  --page:#151a21; --card:#1d242e; --good:#4cc38a; --bad:#ff7a70; --warn:#e2a03f; --span:#34507f; } }
* { box-sizing:border-box } body { margin:0; background:var(--page); color:var(--ink);
  font:15px/1.5 system-ui,sans-serif } main { max-width:1060px; margin:0 auto; padding:28px 20px }
h1 { font-size:24px; margin:0 0 4px } h2 { font-size:17px; margin:30px 0 8px }
p { margin:4px 0 } .dim { color:var(--dim) } code { font-size:13px; overflow-wrap:anywhere }
.badge { display:inline-block; padding:1px 9px; border-radius:10px; font-weight:600;
  border:1px solid currentColor } .valid,.landed { color:var(--good) }
.violated { color:var(--bad) } .unknown,.missed,.inconclusive { color:var(--warn) }
.figures { display:flex; flex-wrap:wrap; gap:10px; margin:16px 0 }
.figures div { background:var(--card); border:1px solid var(--line); border-radius:8px;
  padding:8px 14px; min-width:120px } .figures b { display:block; font-size:19px }
.scroll { overflow-x:auto } table { border-collapse:collapse; width:100% }
th,td { text-align:left; vertical-align:top; padding:6px 10px; border-bottom:1px solid var(--line) }
th { color:var(--dim); font-weight:600 } pre { background:var(--card); padding:10px; margin:6px 0 0;
  border-radius:6px; overflow-x:auto; font-size:12.5px } svg { width:100%; min-width:760px }
svg text { fill:var(--ink); font:11px system-ui,sans-serif; text-anchor:middle }
svg .lane { text-anchor:start; font-size:13px } svg .time { fill:var(--dim) }
svg .rail { stroke:var(--line); stroke-width:2 } svg .tick { stroke:var(--line) }
svg .span { fill:var(--span); stroke:var(--page) }
svg .hurt { fill:var(--bad); opacity:.3 } svg .good { fill:var(--good) }
svg .bad { fill:var(--bad) } svg .warn { fill:var(--warn) }
"""


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
    plan = history.one("plan")
    planted = (
        f" with the planted bug <code>{escape(str(plan['planted']))}</code>"
        if plan.get("planted")
        else ""
    )
    sections = [
        f"<h1>{escape(judgement.experiment)} {_badge(judgement.verdict)}</h1>",
        f'<p class="dim">seed {judgement.seed}, {plan["workers"]} workers{planted}, '
        f"{escape(judgement.end)}. Run it again: "
        f"<code>{escape(again(judgement, history))}</code></p>",
        f"<p>{escape(judgement.reason)}</p>" if judgement.reason else "",
        _figures(judgement),
        f'<h2>Time line</h2><div class="scroll">{timeline.render(history)}</div>',
        "<h2>Faults</h2>" + _fault_table(judgement),
        "<h2>Invariants</h2>" + _finding_table(judgement),
        "<h2>Left on the machine</h2>" + _clean(judgement),
        "<h2>Checkpoints at the end</h2>" + _checkpoint_table(history),
        "<h2>Plan</h2>" + _folded("schedule, jobs and image digests", dict(plan)),
        "<h2>Notes</h2>" + _notes(history),
    ]
    title = f"{escape(judgement.experiment)}: {judgement.verdict}"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{STYLE}</style></head><body><main>\n"
        + "\n".join(section for section in sections if section)
        + "\n</main></body></html>\n"
    )


def again(judgement: Judgement, history: History) -> str:
    """Return the command that runs the same plan again."""
    plan = history.one("plan")
    planted = f" --planted {plan['planted']}" if plan.get("planted") else ""
    return (
        f"python -m chaos run {judgement.experiment} --seed {judgement.seed} "
        f"--workers {plan['workers']}{planted}"
    )


def _badge(word: str) -> str:
    return f'<span class="badge {escape(word)}">{escape(word)}</span>'


def _figures(judgement: Judgement) -> str:
    titles = {
        "mttd_s": "detected after (s)",
        "reclaim_s": "claimed again after (s)",
        "mttr_s": "first new step after (s)",
        "goodput": "goodput (useful / executed steps)",
    }
    cells = [
        f"<div><b>{escape(told(judgement.figures.get(name)))}</b>{escape(title)}</div>"
        for name, title in titles.items()
    ]
    return f'<div class="figures">{"".join(cells)}</div>'


def told(value: JsonValue) -> str:
    """Return a figure for people; a dash where there is none."""
    if isinstance(value, list):
        return ", ".join(told(each) for each in value) or "-"
    return f"{value:.2f}" if isinstance(value, float) else "-" if value is None else str(value)


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = "".join(f"<th>{escape(title)}</th>" for title in heads)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><tr>{head}</tr>{body}</table></div>'


def _folded(title: str, value: JsonValue) -> str:
    body = escape(json.dumps(value, indent=1, sort_keys=True))
    return f"<details><summary>{escape(title)}</summary><pre>{body}</pre></details>"


def _fault_table(judgement: Judgement) -> str:
    return _table(
        ("fault", "kind", "target", "landed", "evidence"),
        (
            (
                escape(str(fault["id"])),
                escape(str(fault["kind"])),
                escape(str(fault["target"])),
                _badge(str(fault["landed"])),
                _folded(
                    str(mapping(fault["evidence"]).get("reason") or "receipt"), fault["evidence"]
                ),
            )
            for fault in judgement.faults
        ),
    )


def _finding_table(judgement: Judgement) -> str:
    return _table(
        ("invariant", "verdict", "why"),
        (
            (escape(found.name), _badge(found.verdict), escape(found.detail))
            for found in judgement.findings
        ),
    )


def _clean(judgement: Judgement) -> str:
    counts = [f"{told(count)} {name}" for name, count in judgement.clean.items()]
    return f"<p>{escape(', '.join(counts))}</p>"


def _checkpoint_table(history: History) -> str:
    last = {str(tree["role"]): tree for tree in history.of("checkpoints")}
    return _table(
        ("job", "step", "state", "attempt", "reason"),
        (
            (
                escape(role),
                escape(str(entry.get("step"))),
                escape(str(entry.get("state"))),
                f"<code>{escape(str(entry.get('attempt_id')))}</code>",
                escape(str(entry.get("reason") or "")),
            )
            for role, tree in sorted(last.items())
            for entry in items(tree.get("checkpoints"))
        ),
    )


def _notes(history: History) -> str:
    notes = history.of("note")
    if not notes:
        return '<p class="dim">none</p>'
    return "".join(_folded(str(note.get("text", "note")), dict(note)) for note in notes)
