"""The look of a report: one style sheet, and the pieces that pages are made of."""

import json
from collections.abc import Iterable
from html import escape

from chaos.model import JsonValue

HOLDERS = 8
"""Holders have colours of their own up to this many, then they repeat."""

STYLE = """
:root { color-scheme: light dark; --ink:#1d2430; --dim:#5d6879; --line:#d8dde5; --page:#fff;
  --card:#f6f8fa; --good:#1a7f4b; --bad:#c0322b; --warn:#a86400; --h0:#b9cdf0; --h1:#f3cfa6;
  --h2:#bfe3c4; --h3:#e3c3ea; --h4:#f2c2c6; --h5:#b8e2e4; --h6:#e6e0a8; --h7:#d0d3da }
@media (prefers-color-scheme: dark) { :root { --ink:#e4e8ee; --dim:#98a3b3; --line:#38414f;
  --page:#151a21; --card:#1d242e; --good:#4cc38a; --bad:#ff7a70; --warn:#e2a03f; --h0:#34507f;
  --h1:#7d5527; --h2:#2f6a3b; --h3:#69407a; --h4:#7d3b46; --h5:#246a70; --h6:#66601f;
  --h7:#4d5563 } }
* { box-sizing:border-box } body { margin:0; background:var(--page); color:var(--ink);
  font:15px/1.5 system-ui,sans-serif; overflow-wrap:anywhere }
main { max-width:1060px; margin:0 auto; padding:28px 20px }
h1 { font-size:24px; margin:0 0 4px } h2 { font-size:17px; margin:30px 0 8px }
p { margin:4px 0 } .lead { font-size:17px } .dim,small { color:var(--dim) } code { font-size:13px }
.badge { display:inline-block; padding:1px 9px; border-radius:10px; font-weight:600;
  border:1px solid currentColor; overflow-wrap:normal } .valid,.landed { color:var(--good) }
.violated,.cannot { color:var(--bad) } .unknown,.missed,.inconclusive { color:var(--warn) }
.figures { display:grid; grid-template-columns:repeat(auto-fit,minmax(150px,1fr)); gap:10px;
  margin:16px 0 4px } .figures div { background:var(--card); border:1px solid var(--line);
  border-radius:8px; padding:8px 14px } .figures b { display:block; font-size:19px }
table { border-collapse:collapse; width:100% } td small { display:block }
th,td { text-align:left; vertical-align:top; padding:6px 10px; border-bottom:1px solid var(--line) }
th { color:var(--dim); font-weight:600 } pre { background:var(--card); padding:10px; margin:6px 0 0;
  border-radius:6px; white-space:pre-wrap; font-size:12.5px }
.key span { display:inline-block; padding:0 9px; margin:0 6px 4px 0; border-radius:4px }
svg { width:100%; display:block } .narrow { display:none }
svg text { fill:var(--ink); font:11px system-ui,sans-serif; text-anchor:middle }
svg .lane { text-anchor:start; font-size:13px; font-weight:600 } svg .time { fill:var(--dim) }
svg .rail { stroke:var(--line); stroke-width:2 } svg .tick { stroke:var(--line) }
svg rect { stroke:var(--page) } svg .hurt { fill:var(--bad); opacity:.3 }
svg .good { fill:var(--good) } svg .bad { fill:var(--bad) } svg .warn { fill:var(--warn) }
@media (max-width:640px) { .wide { display:none } .narrow { display:block }
  main { padding:16px 12px } table,tbody,tr,td { display:block } tr { border-bottom:1px solid
  var(--line); padding:6px 0 } tr.heads { display:none } td { border:0; padding:1px 0 }
  td::before { content:attr(data-head) ": "; color:var(--dim) } td details { display:inline-block;
  vertical-align:top; max-width:100% } .figures { grid-template-columns:1fr 1fr } }
"""
HOLDER_STYLE = "".join(
    f".h{number} {{ fill:var(--h{number}); background:var(--h{number}) }}\n"
    for number in range(HOLDERS)
)


def whole(title: str, sections: Iterable[str]) -> str:
    """Return a page that loads nothing; empty sections are left out."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}{HOLDER_STYLE}</style></head><body><main>\n"
        + "\n".join(section for section in sections if section)
        + "\n</main></body></html>\n"
    )


def badge(word: str) -> str:
    """Return a word with its colour."""
    return f'<span class="badge {escape(word)}">{escape(word)}</span>'


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table of markup; where there is little room each row is a block of its own."""
    titles = [escape(title) for title in heads]
    head = "".join(f"<th>{title}</th>" for title in titles)
    body = "".join(
        "<tr>"
        + "".join(
            f'<td data-head="{title}">{cell}</td>' for title, cell in zip(titles, row, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    return f'<table><tr class="heads">{head}</tr>{body}</table>'


def folded(title: str, value: JsonValue) -> str:
    """Return JSON behind its title."""
    body = escape(json.dumps(value, indent=1, sort_keys=True))
    return f"<details><summary>{escape(title)}</summary><pre>{body}</pre></details>"
