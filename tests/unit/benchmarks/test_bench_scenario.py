"""The bench: arms in turn, figures with their comparators, caveats."""

import time
from collections.abc import Callable, Iterator

import pytest

from benchmarks.scenario import Bench, compared, require, series
from benchmarks.schema import BenchError, Unavailable

Make = Callable[..., Bench]


def test_arms_run_in_turn_and_in_alternating_order(bench: Make) -> None:
    order: list[str] = []
    arms = {name: lambda name=name: order.append(name) or 1.0 for name in ("a", "b")}
    bench().take(3, arms, warm_up=0)
    assert order == ["a", "b", "b", "a", "a", "b"]


def test_a_warm_up_is_thrown_away_and_never_subtracted(bench: Make) -> None:
    values: Iterator[float] = iter([100.0, 1.0, 2.0])
    taken = bench().take(2, {"a": lambda: next(values)})
    assert taken == {"a": [1.0, 2.0]}


def test_an_arm_that_is_not_there_gets_a_note_and_no_number(bench: Make) -> None:
    def missing() -> float:
        raise Unavailable("ray is not installed")

    here = bench()
    taken = here.take(2, {"ours": lambda: 1.0, "ray": missing})
    here.report(taken["ours"], comparators={"ray": taken.get("ray")})
    [row] = here.rows
    assert row.comparators == {}
    assert row.notes == ["ray: not measured: ray is not installed"]


def test_an_arm_that_goes_away_in_mid_run_leaves_no_half_of_its_samples(bench: Make) -> None:
    left = iter([{"x": 1.0}, {"x": 2.0}])

    def failing() -> dict[str, float]:
        require(found := next(left, None), "it went away")
        return found or {}

    assert bench().take(3, {"a": failing, "b": lambda: 0.0}, warm_up=0) == {"b": [0.0] * 3}


def test_an_arm_that_breaks_breaks_the_scenario(bench: Make) -> None:
    def broken() -> float:
        raise BenchError("wrong")

    with pytest.raises(BenchError, match="wrong"):
        bench().take(1, {"a": broken})


def test_an_arm_may_measure_several_things(bench: Make) -> None:
    taken = bench().take(2, {"a": lambda: {"stall": 1.0, "durable": 2.0}})
    assert taken == {"a.stall": [1.0, 1.0], "a.durable": [2.0, 2.0]}


def test_a_smoke_takes_one_sample(bench: Make) -> None:
    assert (bench(smoke=True).count(4), bench().count(4)) == (1, 20)


def test_what_is_counted_is_not_tested(bench: Make) -> None:
    here = bench()
    here.report([5.0], comparators={"ray": [22.0]}, counted=True)
    assert (here.rows[0].comparators, here.rows[0].comparisons) == ({"ray": 22.0}, [])


def test_a_row_without_samples_says_why(bench: Make) -> None:
    here = bench()
    here.note("there is no torch")
    here.report(None)
    [row] = here.rows
    assert (row.median, row.reason, row.samples) == (None, "there is no torch", [])


def test_caveats_go_to_one_row_only(bench: Make) -> None:
    here = bench()
    here.note("only once")
    here.report([1.0])
    here.report([1.0], variant="second")
    assert [row.notes for row in here.rows] == [["only once"], []]


def test_a_negative_overhead_is_reported_signed_and_as_not_significant(bench: Make) -> None:
    """Case 167: not clamped to 0, not made absolute."""
    found = compared("baseline", [0.99, 1.00, 0.97], [1.00, 1.05, 0.98], paired=True)
    assert found.difference == pytest.approx(-0.01)
    assert found.ci_low < 0
    assert not found.significant
    assert found.finding.startswith("not significant: difference -0.01 [")


def test_a_real_difference_is_called_significant_with_its_ratio() -> None:
    ours = [2.0 + i / 100 for i in range(10)]
    found = compared("bare", ours, [each / 2 for each in ours], paired=True)
    assert found.significant
    assert found.ratio == pytest.approx(2.0)
    assert found.finding.endswith("2 x bare")


def test_against_nothing_there_is_no_ratio() -> None:
    assert compared("none", [1.0, 2.0], [0.0, 0.0], paired=True).ratio is None


def test_a_series_may_be_empty() -> None:
    assert series("x", "s", []).median is None


def test_durations_do_not_follow_the_wall_clock(
    bench: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case 165: the time of day jumps back an hour in the middle of a run."""
    here = bench()
    jump = time.time() - 3600
    monkeypatch.setattr(time, "time", lambda: jump)
    here.report([1.0])
    assert 0 <= here.rows[0].wall_s < 60


def test_a_source_holds_only_what_was_asked_for(bench: Make) -> None:
    path = bench().source("stamp.py", text={"train.py": "pass"})
    assert sorted(each.name for each in path.iterdir()) == ["stamp.py", "train.py"]
