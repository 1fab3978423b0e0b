"""Real failures with labels: restart-or-not must be right wherever the evidence shows it."""

import pytest

from flashruntime.protocol.failures import FailureClass
from tests.unit.recovery import render_corpus
from tests.unit.recovery.corpus_rows import Row, counts, independent_rows, own_rows

OWN, INDEPENDENT = own_rows(), independent_rows()
CASES_OF_AREA_A = {f"{number:03d}" for number in range(1, 44, 2)}


@pytest.mark.parametrize("row", OWN, ids=lambda row: row.name)
def test_a_real_failure_gets_a_right_class_and_the_right_action(row: Row) -> None:
    decision = row.decision
    assert decision.failure_class in row.classes, decision.reason
    if row.restart is not None:
        assert decision.retries == row.restart, decision.reason
    assert row.reason in decision.reason
    assert "[rule " in decision.reason


@pytest.mark.parametrize("row", INDEPENDENT, ids=lambda row: row.name)
def test_a_failure_that_the_rules_were_not_made_for_is_never_taken_for_another(row: Row) -> None:
    """Where the evidence is not understood, that is said, and it is tried again."""
    assert row.verdict != "wrong", row.decision.reason
    if row.verdict == "unknown":
        assert row.decision.failure_class is FailureClass.UNKNOWN
        assert row.decision.retries


def test_the_corpus_is_large_and_has_every_case() -> None:
    ids = {row.situation for row in OWN}
    assert {name.rstrip("AB").partition("-")[0] for name in ids} >= CASES_OF_AREA_A
    assert len(ids) >= 100
    assert len(INDEPENDENT) >= 20


def test_all_deterministic_bugs_and_all_transients_are_named_and_of_the_rest_none_is_wrong() -> (
    None
):
    table = counts(OWN)
    assert all(row["wrong"] == row["unknown"] == 0 for row in table.values())


def test_the_documents_table_is_the_one_of_these_rules() -> None:
    """`python -m tests.unit.recovery.render_corpus` writes it anew."""
    assert render_corpus.DOCUMENT.read_text("utf-8") == render_corpus.render()
