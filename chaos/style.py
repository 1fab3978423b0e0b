"""The style sheet of the pages: its colours by theme, and its rules."""

LIGHT = {
    "ink": "#1d2430",
    "dim": "#5d6879",
    "line": "#d8dde5",
    "page": "#fff",
    "card": "#f6f8fa",
    "mark": "#fff3c4",
    "focus": "#0b57d0",
    "good": "#1a7f4b",
    "bad": "#c0322b",
    "warn": "#8f5600",
}
DARK = {
    "ink": "#e4e8ee",
    "dim": "#98a3b3",
    "line": "#38414f",
    "page": "#151a21",
    "card": "#1d242e",
    "mark": "#4a3f14",
    "focus": "#8ab4f8",
    "good": "#4cc38a",
    "bad": "#ff7a70",
    "warn": "#e2a03f",
}
PAPER = {**LIGHT, "ink": "#000", "dim": "#333", "line": "#999", "card": "#fff"}
COLOURS = (
    ("#b9cdf0", "#34507f", "#2f5fb3", "#8fb3f0"),
    ("#f3cfa6", "#7d5527", "#a85a10", "#e0a25f"),
    ("#bfe3c4", "#2f6a3b", "#2a7a38", "#7fce8c"),
    ("#e3c3ea", "#69407a", "#8a3fa0", "#cf96df"),
    ("#f2c2c6", "#7d3b46", "#b03a48", "#ee8f9b"),
    ("#b8e2e4", "#246a70", "#177278", "#6fcdd3"),
    ("#e6e0a8", "#66601f", "#6e6710", "#d3c95a"),
    ("#d0d3da", "#4d5563", "#596070", "#aab3c0"),
)
"""Of each holder: its bars on light and on dark ground, its curves on light and on dark."""
HOLDERS = len(COLOURS)
RULES = """
* { box-sizing:border-box } body { margin:0; background:var(--page); color:var(--ink);
  font:15px/1.5 system-ui,sans-serif; overflow-wrap:anywhere }
main { max-width:1060px; margin:0 auto; padding:28px 20px }
h1 { font-size:24px; margin:0 0 4px } h2 { font-size:17px; margin:30px 0 8px }
h3 { font-size:15px; margin:12px 0 2px }
p { margin:4px 0 } .lead { font-size:17px } .dim,small { color:var(--dim) } code { font-size:13px }
.badge { display:inline-block; padding:1px 9px; border-radius:10px; font-weight:600;
  border:1px solid currentColor; overflow-wrap:normal } .valid,.landed { color:var(--good) }
.violated,.cannot { color:var(--bad) } .unknown,.missed,.inconclusive { color:var(--warn) }
.figures { display:grid; grid-template-columns:repeat(auto-fit,minmax(150px,1fr)); gap:10px;
  margin:16px 0 4px } .figures div { background:var(--card); border:1px solid var(--line);
  border-radius:8px; padding:8px 14px } .figures b { display:block; font-size:19px }
table { border-collapse:collapse; width:100% } td small { display:block }
th,td { text-align:left; vertical-align:top; padding:6px 10px; border-bottom:1px solid var(--line) }
th { color:var(--dim); font-weight:600 } a { color:inherit } tr:target { background:var(--mark) }
:focus-visible { outline:2px solid var(--focus); outline-offset:2px }
.scroll { max-height:460px; overflow:auto; border:1px solid var(--line); border-radius:6px }
.scroll td:nth-child(-n+2) { white-space:nowrap }
.scroll thead th { position:sticky; top:0; background:var(--card) }
pre { background:var(--card); padding:10px; margin:6px 0 0; border-radius:6px;
  white-space:pre-wrap; font-size:12.5px }
.said { position:absolute; clip-path:inset(50%); width:1px; height:1px; overflow:hidden }
.key span { display:inline-block; padding:0 9px; margin:0 6px 4px 0; border-radius:4px }
svg { width:100%; display:block } .narrow { display:none }
svg text { fill:var(--ink); font:11px system-ui,sans-serif; text-anchor:middle }
svg .lane { text-anchor:start; font-size:13px; font-weight:600 } svg .time { fill:var(--dim) }
svg .rail { stroke:var(--line); stroke-width:2 } svg .tick { stroke:var(--line) }
svg rect { stroke:var(--page) } svg .band { stroke:none; fill:var(--warn) }
svg .band.landed { fill:var(--bad) } svg .fault { text-anchor:start; font-weight:600;
  fill:var(--bad) } svg .side { text-anchor:end } svg .heard { stroke:var(--dim) }
svg .unheard { stroke:var(--bad); stroke-width:2 } svg .curve { fill:none; stroke-width:2 }
svg .summed { fill:var(--h7) } svg .good { fill:var(--good) }
svg .bad { fill:var(--bad) } svg .warn { fill:var(--warn) }
@media (max-width:640px) { .wide { display:none } .narrow { display:block }
  main { padding:16px 12px } table,thead,tbody,tr,td { display:block } tr { border-bottom:1px solid
  var(--line); padding:6px 0 } tr.heads { display:none } td { border:0; padding:1px 0 }
  .scroll td:nth-child(-n+2) { white-space:normal }
  td::before { content:attr(data-head) ": "; color:var(--dim) } td details { display:inline-block;
  vertical-align:top; max-width:100% } .figures { grid-template-columns:1fr 1fr } }
"""
PRINT = """
main { max-width:none; padding:0 } .scroll { max-height:none; overflow:visible }
details::details-content { content-visibility:visible; height:auto; display:block }
h2 { break-after:avoid } tr,svg { break-inside:avoid } * { print-color-adjust:exact }
"""


def _colours(named: dict[str, str], is_dark: bool) -> str:
    """Return the variables of a theme."""
    bars = {f"h{number}": each[is_dark] for number, each in enumerate(COLOURS)}
    lines = {f"l{number}": each[2 + is_dark] for number, each in enumerate(COLOURS)}
    told = "; ".join(f"--{name}:{each}" for name, each in {**named, **bars, **lines}.items())
    return f":root {{ {told} }}\n"


def _holders() -> str:
    return "".join(
        f".h{number} {{ fill:var(--h{number}); background:var(--h{number}) }}\n"
        f".curve.h{number} {{ stroke:var(--l{number}) }}\n"
        for number in range(HOLDERS)
    )


STYLE = (
    ":root { color-scheme: light dark }\n"
    + _colours(LIGHT, is_dark=False)
    + "@media (prefers-color-scheme: dark) { "
    + _colours(DARK, is_dark=True)
    + "}"
    + RULES
    + _holders()
    + "@media print { "
    + _colours(PAPER, is_dark=False)
    + PRINT
    + "}\n"
)
