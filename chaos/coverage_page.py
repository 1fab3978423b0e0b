"""The coverage of saved runs as one page that loads nothing."""

from collections.abc import Callable, Iterable

from chaos.coverage import Coverage, State
from chaos.figures.phases import Phase
from chaos.page import safe, scrolled, whole
from chaos.words import counted

SIGNS = {
    State.PASS: "✓",
    State.FAIL: "✗",
    State.UNKNOWN: "?",
    State.MISSED: "∅",
    State.NOT_EXERCISED: "·",
}
MEANINGS = {
    State.FAIL: "a landed fault, and the invariant was violated",
    State.PASS: "a landed fault, and the invariant held",
    State.UNKNOWN: "a landed fault, and the judge could not decide",
    State.MISSED: "the fault was tried there, and never landed",
    State.NOT_EXERCISED: "no run tried it",
}
STYLE = """
main { max-width:1500px } .grid { overflow:auto; max-width:100%; border:1px solid var(--line);
  border-radius:6px } .grid table { width:auto } .grid th,.grid td { padding:3px 6px }
.grid td { position:relative; text-align:center; border-left:1px solid var(--line); min-width:30px }
.grid tbody th { position:sticky; left:0; background:var(--page); color:var(--ink);
  font-weight:400; white-space:nowrap } .grid thead th { vertical-align:bottom }
.grid thead span { writing-mode:vertical-rl; transform:rotate(180deg); font-weight:400 }
.PASS { color:var(--good) } .FAIL { color:var(--bad); font-weight:700 } .NOT { color:var(--dim) }
.MISSED,.UNKNOWN { color:var(--warn) } .FAIL,.PASS { background:var(--card) }
@media (max-width:640px) { .grid table { display:table } .grid thead { display:table-header-group }
  .grid tbody { display:table-row-group } .grid tr,.grid tr.heads { display:table-row; padding:0 }
  .grid td { display:table-cell } .grid td::before { content:none } }
"""


def html(found: Coverage) -> str:
    """Return the page."""
    return whole(
        "What the chaos runs have exercised",
        [
            "<h1>What the runs have exercised</h1>",
            f'<p class="lead">{counted(len(found.runs), "run")}: in which phase of a task\'s life '
            "which fault hit, and what each invariant said of it.</p>",
            _counts(found),
            _legend(),
            "<h2>Phase by fault, over all invariants</h2>" + _by_phase(found),
            "<h2>Invariant by fault, over all phases</h2>" + _by_invariant(found),
            "<h2>Exercised by no landed fault</h2>" + _never(found),
            "<h2>Every fault, phase and invariant</h2>" + "".join(_details(found)),
            "<h2>Runs</h2>" + _runs(found),
        ],
        STYLE,
    )


def _counts(found: Coverage) -> str:
    cells = (f"<div><b>{n}</b>{safe(state)}</div>" for state, n in found.counts().items())
    return f'<div class="figures">{"".join(cells)}</div>'


def _legend() -> str:
    told = ", ".join(
        f'<span class="{state}">{SIGNS[state]}</span> {safe(state)}: {safe(MEANINGS[state])}'
        for state in State
    )
    first = "Of several runs the first of these counts."
    return (
        f"<p><small>{told}. {first} A cell of the two tables sums up what stands below.</small></p>"
    )


def _by_phase(found: Coverage) -> str:
    return _grid(
        "Phase by fault",
        [each.partition(":")[0] for each in Phase],
        found.faults,
        lambda fault, number: found.state(phase=[*Phase][number], fault=fault),
    )


def _by_invariant(found: Coverage) -> str:
    return _grid(
        "Invariant by fault",
        found.invariants,
        found.faults,
        lambda fault, number: found.state(invariant=found.invariants[number], fault=fault),
    )


def _grid(
    label: str, heads: Iterable[str], faults: Iterable[str], state: Callable[[str, int], State]
) -> str:
    """Return a table of signs, each with its state in words for those who do not see it."""
    titles = [safe(head) for head in heads]
    head = "".join(f'<th scope="col"><span>{title}</span></th>' for title in titles)
    rows = "".join(
        f'<tr><th scope="row"><a href="#fault-{safe(fault)}">{safe(fault)}</a></th>'
        + "".join(_sign(state(fault, number), title) for number, title in enumerate(titles))
        + "</tr>"
        for fault in faults
    )
    first = f'<tr class="heads"><th scope="col">fault</th>{head}</tr>'
    body = f"<table><thead>{first}</thead><tbody>{rows}</tbody></table>"
    return scrolled(label, body, "grid")


def _sign(state: State, title: str) -> str:
    return (
        f'<td class="{state}" title="{title}: {state}">'
        f'<span aria-hidden="true">{SIGNS[state]}</span><span class="said">{state}</span></td>'
    )


def _never(found: Coverage) -> str:
    return "".join(
        f"<p><b>{safe(what)}:</b> {safe(', '.join(map(str, names)) or 'none')}</p>"
        for what, names in found.never().items()
    )


def _details(found: Coverage) -> Iterable[str]:
    for fault in found.faults:
        hit = [phase for phase in Phase if found.state(phase=phase, fault=fault) in _TRIED]
        rest = [str(phase) for phase in Phase if phase not in hit and phase is not Phase.NEVER]
        body = "".join(_in_phase(found, fault, phase) for phase in hit)
        if rest:
            body += _line(State.NOT_EXERCISED, "in no run, whatever the invariant", rest)
        yield (
            f'<details id="fault-{safe(fault)}"><summary>{safe(fault)}: '
            f"{counted(len(hit), 'phase')}</summary>{body}</details>"
        )


_TRIED = {state for state in State if state is not State.NOT_EXERCISED}


def _in_phase(found: Coverage, fault: str, phase: Phase) -> str:
    """Return what each invariant said of a fault in a phase, one line for each state."""
    states = {
        name: found.state(phase=phase, fault=fault, invariant=name) for name in found.invariants
    }
    lines = (
        _line(state, "", names)
        for state in State
        if (names := [name for name, of in states.items() if of is state])
    )
    return f"<h3>{safe(phase)}</h3>{''.join(lines)}{_examples(found, fault, phase)}"


def _line(state: State, note: str, names: Iterable[str]) -> str:
    told = safe(", ".join(names))
    return f'<p><b class="{state}">{SIGNS[state]} {safe(state)}</b> {safe(note)} {told}</p>'


def _examples(found: Coverage, fault: str, phase: Phase) -> str:
    runs = dict.fromkeys(
        name
        for (at, kind, _), states in found.cells.items()
        if at is phase and kind == fault
        for names in states.values()
        for name in names
    )
    shown = [*runs][:5]
    more = f" and {len(runs) - len(shown)} more" if len(runs) > len(shown) else ""
    return f'<p class="dim">{safe(", ".join(shown))}{more}</p>'


def _runs(found: Coverage) -> str:
    told = safe(", ".join(found.runs) or "none")
    left = "".join(f"<p>Left out: {safe(each)}</p>" for each in found.left_out)
    count = counted(len(found.runs), "run")
    return f"<details><summary>{count}</summary><p>{told}</p></details>{left}"
