"""The corpus: what launchers saw of real failures, what they mean, and whether we say so.

Labels stand in corpus/*.toml and tests/corpus_independent/labels.json, what the launcher saw in
corpus/*.json (see record_corpus.py and record_independent.py).
"""

import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flashruntime.protocol.failures import Decision, Evidence, FailureClass, History
from flashruntime.recovery import decide

CORPUS = Path(__file__).parent / "corpus"
INDEPENDENT = Path(__file__).parents[2] / "corpus_independent"
KINDS = ("deterministic", "transient", "ambiguous")
VERDICTS = ("right", "unknown", "wrong")
RESTART = {"yes": True, "no": False, "unclear": None}


@dataclass(frozen=True)
class Row:
    """One recorded failure with its label; `restart` is None where a label does not say."""

    source: str
    key: str
    say: str
    classes: frozenset[FailureClass]
    restart: bool | None
    reason: str
    evidence: Evidence

    @property
    def name(self) -> str:
        return f"{self.source}:{self.key}"

    @property
    def situation(self) -> str:
        return self.key.partition("/")[0]

    @property
    def kind(self) -> str:
        """What the label says must come of it."""
        if self.restart is False:
            return "deterministic"
        open_class = FailureClass.UNKNOWN in self.classes and self.source != "independent"
        return "ambiguous" if self.restart is None or open_class else "transient"

    @property
    def decision(self) -> Decision:
        """What is decided when it is seen for the first time."""
        return decide(self.evidence, History(max_errors=3))

    @property
    def verdict(self) -> str:
        decision = self.decision
        acts = self.restart is None or decision.retries == self.restart
        if acts and decision.failure_class in self.classes:
            return "right"
        return "unknown" if decision.failure_class is FailureClass.UNKNOWN else "wrong"


def own_rows() -> list[Row]:
    """The situations whose rules and labels were made together."""
    return [row for path in sorted(CORPUS.glob("*.toml")) for row in _of(path.stem)]


def _of(name: str) -> list[Row]:
    labels = tomllib.loads((CORPUS / f"{name}.toml").read_text("utf-8"))["situation"]
    by_id = {label["id"]: label for label in labels}
    assert len(by_id) == len(labels), "an id twice"
    seen = json.loads((CORPUS / f"{name}.json").read_text("utf-8"))
    assert {key.partition("/")[0] for key in seen} == set(by_id), "record the corpus again"
    return [_row(name, key, by_id[key.partition("/")[0]], seen[key]) for key in seen]


def _row(source: str, key: str, label: dict[str, Any], seen: dict[str, Any]) -> Row:
    return Row(
        source,
        key,
        label.get("say", ""),
        frozenset(map(FailureClass, label["classes"])),
        label.get("restart"),
        label.get("reason", ""),
        Evidence.model_validate(seen),
    )


def independent_rows() -> list[Row]:
    """The situations of somebody who had not seen the rules."""
    labels = json.loads((INDEPENDENT / "labels.json").read_text("utf-8"))
    seen = json.loads((CORPUS / "independent.json").read_text("utf-8"))
    assert set(seen) == {label["name"] for label in labels}, "record the corpus again"
    rows = []
    for label in labels:
        script = INDEPENDENT / "situations" / f"{label['name']}.py"
        say = script.read_text("utf-8").partition("\n")[0].strip('#" ')
        fixed = {**label, "restart": RESTART[label["restart"]], "reason": "", "say": say}
        rows.append(_row("independent", label["name"], fixed, seen[label["name"]]))
    return rows


def counts(rows: list[Row]) -> dict[str, dict[str, int]]:
    """How many rows of each kind got which verdict."""
    table = {kind: dict.fromkeys(VERDICTS, 0) for kind in KINDS}
    for row in rows:
        table[row.kind][row.verdict] += 1
    return table
