"""The soak's book-keeping: goals, what counts, distributions, and a book torn by a power cut."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.cli_soak import stages
from chaos.model import CannotRun, Verdict
from chaos.soak import LINES, Stage, Step, landed, load, measured, save, spread, step_of, tally

KILLS = Stage("kills", "kills", 40, 20, lambda n: ["run", "x", "--seed", str(n)], landed)
ONCE = Stage("once", "runs", 3, 1, lambda n: ["run", f"x{n}"])


def verdict(said: str = "valid", faults: int = 20, lost: int = 0, **more: Any) -> dict[str, Any]:
    return {
        "experiment": "x",
        "seed": 1,
        "verdict": said,
        "faults": [{"landed": "landed"}] * faults + [{"landed": "missed"}] * lost,
        "invariants": [{"name": "one_result", "verdict": said}],
        "figures": {"mttd_s": [0.1] * faults},
    } | more


def test_only_what_landed_counts_and_the_rest_is_run_again() -> None:
    steps = [
        step_of(KILLS, n, code, 9.0, [verdict(said, good, 20 - good)])
        for n, code, said, good in ((1, 0, "valid", 20), (2, 3, "unknown", 15))
    ]
    (found,) = tally([KILLS], steps)
    assert (found.reached, found.over, found.unclear()) == (35, False, 1)
    steps.append(step_of(KILLS, 3, 0, 9.0, [verdict()]))
    (found,) = tally([KILLS], steps)
    assert (found.reached, found.over, found.verdict) == (55, True, Verdict.VALID)


def test_a_violation_is_named_and_stays_one_however_much_was_reached() -> None:
    bad = step_of(KILLS, 1, 1, 9.0, [verdict("violated")])
    good = step_of(KILLS, 2, 0, 9.0, [verdict()])
    (found,) = tally([KILLS], [bad, good])
    assert found.verdict is Verdict.VIOLATED
    assert found.to_json()["violated"] == ["x, seed 1: one_result"]


def test_what_is_run_once_has_no_second_try_that_could_hide_a_failure() -> None:
    steps = [step_of(ONCE, n, code, 1.0, []) for n, code in ((1, 0), (2, 3), (3, 0))]
    (found,) = tally([ONCE], steps)
    assert (found.over, found.reached, found.verdict) == (True, 2, Verdict.UNKNOWN)


def test_a_stage_that_never_reaches_anything_is_given_up() -> None:
    steps = [step_of(KILLS, n, 3, 1.0, [verdict("unknown", 0, 20)]) for n in (1, 2, 3)]
    (found,) = tally([KILLS], steps)
    assert found.over
    assert found.verdict is Verdict.UNKNOWN


def test_a_share_makes_goals_smaller_but_never_smaller_than_one_step() -> None:
    assert (KILLS.scaled(0.001).goal, ONCE.scaled(0.5).goal) == (20, 2)


def test_the_goals_are_those_that_the_documentation_promises() -> None:
    goals = {stage.name: stage.goal for stage in stages()}
    assert (goals["window"], goals["leaks"], goals["clean"], goals["recovery"]) == (
        500,
        100,
        200,
        300,
    )
    assert measured({"figures": {"mttd_s": [0.1, 0.2]}}) == 2


@settings(max_examples=20)
@given(cut=st.integers(min_value=0, max_value=400))
def test_whatever_end_a_power_cut_leaves_of_the_book_whole_steps_stay_and_the_next_fits(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    folder = tmp_path_factory.mktemp("soak")
    steps = [step_of(KILLS, n, 0, 1.0, [verdict()]) for n in (1, 2)]
    for step in steps:
        save(folder, step)
    book = folder / LINES
    book.write_bytes(book.read_bytes()[: len(book.read_bytes()) - cut])
    kept = load(folder)
    assert kept == steps[: len(kept)]
    save(folder, steps[1])
    assert load(folder) == [*kept, steps[1]]


def test_a_book_that_somebody_edited_is_refused_with_its_line(tmp_path: Path) -> None:
    (tmp_path / LINES).write_text('{"stage": "kills"}\n')
    with pytest.raises(CannotRun, match="line 1"):
        load(tmp_path)


@given(st.lists(st.floats(0, 100), min_size=1, max_size=400))
def test_a_distribution_gives_a_99th_percentile_only_where_there_is_one(
    values: list[float],
) -> None:
    found = spread(values)
    assert isinstance(found, dict)
    assert ("p99" in found) == (len(values) >= 300)
    assert found["max"] == max(values)
    assert sum(each <= found["p50"] for each in values) * 2 >= len(values)  # type: ignore[operator]


def test_steps_are_what_was_saved(tmp_path: Path) -> None:
    step = Step("kills", 1, ("run", "x"), 0, 1.5, 20, (0.1,), (0.2,), ("a: b",))
    save(tmp_path, step)
    assert load(tmp_path) == [step]
