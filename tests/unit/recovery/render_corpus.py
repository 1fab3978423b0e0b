"""Render docs/failure-typing.md from the policy's table and the corpus.

python -m tests.unit.recovery.render_corpus   (from the root of the checkout)
"""

import json
from pathlib import Path
from typing import Any

from flashruntime.protocol.budget import MAX_LOSS_RUN, MAX_SAME_RUN
from flashruntime.recovery.incidents import SHARED, Bounds
from flashruntime.recovery.policy import POLICY_VERSION, TABLE
from tests.unit.recovery.corpus_rows import (
    CORPUS,
    KINDS,
    VERDICTS,
    Row,
    counts,
    independent_rows,
    own_rows,
)

DOCUMENT = Path(__file__).parents[3] / "docs" / "failure-typing.md"


def _text(name: str) -> str:
    return (CORPUS / f"{name}.md").read_text("utf-8")


def _cell(text: object) -> str:
    return str(text).replace("|", "\\|").replace("\n", " ")


def _table(head: list[str], rows: list[list[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines) + "\n"


def _policy() -> str:
    rows: list[list[object]] = []
    for kind, row in TABLE.items():
        wait = f"{row.base_s:g} s, doubling to {row.longest_s:g} s" if row.longest_s else "-"
        wait = f"none, then {wait}" if row.first_is_free else wait
        spends = "errors" if row.counts_as_error else "losses"
        repeat = "final" if row.repeat_is_final else "-"
        spent = row.when_spent.value if row.action != "fail_job" else "-"
        rows.append([kind.value, row.action.value, spends, wait, repeat, spent])
    head = ["class", "action", "spends", "wait", "the same again", "budget spent"]
    return _table(head, rows)


def _rules() -> str:
    bounds = Bounds()
    shared = ", ".join(sorted(kind.value for kind in SHARED))
    return (
        f"Errors are limited by `max_restarts` or `maxTaskAttempts`; losses by {MAX_LOSS_RUN} in a "
        "row. A checkpoint beyond all earlier ones renews both. The same failure twice at the same "
        f"known step, or {MAX_SAME_RUN} times at an unknown one, is final where the table says so; "
        "where both came right after the resume from one checkpoint, a local run tries once more "
        "without that checkpoint. "
        "Waits are spread over their upper half. An attempt of several ranks is restarted as a "
        "group.\n\n"
        f"An incident: failures of one class ({shared}) of at least {bounds.tasks} tasks on at "
        f"least {bounds.nodes} nodes (of a local run, which has one node, of {bounds.tasks} tasks) "
        f"within {bounds.window_s:g} s. It is called correlated_incident, and freezes retries of "
        f"that class for {bounds.freeze_s:g} s, each time that follows soon twice as long, up to "
        f"{bounds.longest_s:g} s. Errors count on, so that it ends.\n\n"
        "Each decision is recorded with its evidence and what else it depended on (budget, "
        "repeats, incident) in RECOVERY_ACTION_SELECTED; `flashruntime.recovery.replay` makes it "
        "again from the events alone.\n"
    )


def _accuracy(named: list[tuple[str, dict[str, Any]]]) -> str:
    rows: list[list[object]] = []
    for name, table in named:
        for kind in KINDS:
            total = sum(table[kind][verdict] for verdict in VERDICTS)
            rows.append([name, kind, total, *(table[kind][verdict] for verdict in VERDICTS)])
    return _table(["corpus", "label", "failures", *VERDICTS], rows)


def _list(rows: list[Row]) -> str:
    lines: list[list[object]] = []
    for row in rows:
        made = row.decision
        lines.append([row.key, row.say, row.kind, made.failure_class.value,
                      made.action.value, row.verdict])  # fmt: skip
    return _table(["situation", "what happens", "label", "class", "action", "verdict"], lines)


def render() -> str:
    """Return the whole document."""
    own, independent = own_rows(), independent_rows()
    first = json.loads((CORPUS / "first_sight.json").read_text("utf-8"))
    named = [("own", counts(own)), ("independent", counts(independent))]
    sight = [(each["rules"], each) for each in first]
    situations = len({row.name.partition("/")[0] for row in own})
    return "\n".join(
        [
            _text("introduction"),
            f"## The policy, version {POLICY_VERSION}\n",
            _policy(),
            _rules(),
            _text("actions"),
            "## Accuracy\n",
            f"{situations} situations of our own, some recorded twice (with and without an error "
            f"file), and {len(independent)} written and labelled by somebody who had not seen the "
            "rules. Each was run for real. Right: a class that the label allows, and restarted or "
            "not as it says. Unknown: neither named nor wrong, tried again. A failure is counted "
            "wrong also where only its class is.\n",
            _accuracy(named),
            "The independent situations at first sight:\n",
            _accuracy(sight),
            "## Independent situations\n",
            _list(independent),
            "## Own situations\n",
            _list(own),
        ]
    )


if __name__ == "__main__":
    DOCUMENT.write_text(render(), "utf-8")
