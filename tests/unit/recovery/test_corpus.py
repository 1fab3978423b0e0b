"""Real failures with labels: restart-or-not must be right wherever the evidence shows it.

Labels stand in corpus/*.toml, what the launcher saw in corpus/*.json (see record_corpus.py).
"""

import json
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from flashruntime.protocol.failures import Evidence, FailureClass, History, RecoveryAction
from flashruntime.recovery import decide

CORPUS = Path(__file__).parent / "corpus"
FILES = sorted(path.stem for path in CORPUS.glob("*.toml"))
CASES_OF_AREA_A = {f"{number:03d}" for number in range(1, 44, 2)}


@dataclass(frozen=True)
class Row:
    name: str
    label: dict[str, Any]
    evidence: Evidence

    @property
    def classes(self) -> set[FailureClass]:
        return {FailureClass(name) for name in self.label["classes"]}

    @property
    def kind(self) -> str:
        """What the label says must come of it."""
        if self.label.get("restart") is False:
            return "deterministic"
        return "ambiguous" if FailureClass.UNKNOWN in self.classes else "transient"


def rows() -> list[Row]:
    found = []
    for name in FILES:
        labels = tomllib.loads((CORPUS / f"{name}.toml").read_text("utf-8"))["situation"]
        by_id = {label["id"]: label for label in labels}
        assert len(by_id) == len(labels), "an id twice"
        seen = json.loads((CORPUS / f"{name}.json").read_text("utf-8"))
        assert {key.partition("/")[0] for key in seen} == set(by_id), "record the corpus again"
        for key, evidence in seen.items():
            label = by_id[key.partition("/")[0]]
            found.append(Row(f"{name}:{key}", label, Evidence.model_validate(evidence)))
    return found


ROWS = rows()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_real_failure_gets_a_right_class_and_the_right_action(row: Row) -> None:
    decision = decide(row.evidence, History(max_errors=3))
    assert decision.failure_class in row.classes, decision.reason
    if "restart" in row.label:
        retried = decision.action is not RecoveryAction.FAIL_JOB
        assert retried == row.label["restart"], decision.reason
    assert row.label.get("reason", "") in decision.reason
    assert "[rule " in decision.reason


def test_the_corpus_is_large_and_has_every_case() -> None:
    ids = {row.label["id"] for row in ROWS}
    assert {name.rstrip("AB").partition("-")[0] for name in ids} >= CASES_OF_AREA_A
    assert len(ids) >= 100


def test_accuracy_of_restart_or_not(capsys: pytest.CaptureFixture[str]) -> None:
    """All deterministic bugs and all transients are named; of the rest, none is wrong."""
    counts: dict[str, list[int]] = {}
    for row in ROWS:
        decision = decide(row.evidence, History(max_errors=3))
        retried = decision.action is not RecoveryAction.FAIL_JOB
        right = decision.failure_class in row.classes
        right = right and retried == row.label.get("restart", retried)
        unknown = decision.failure_class is FailureClass.UNKNOWN
        count = counts.setdefault(row.kind, [0, 0, 0])
        count[0] += 1
        count[1] += right
        count[2] += unknown
    with capsys.disabled():
        sys.stdout.write("\n  kind           rows  right  unknown\n")
        for kind, count in sorted(counts.items()):
            sys.stdout.write(f"  {kind:13}  {count[0]:4}  {count[1]:5}  {count[2]:7}\n")
    assert all(total == right for total, right, _ in counts.values())
    assert counts["deterministic"][2] == 0
    assert counts["transient"][2] == 0
