"""Shrinking: what is found is smallest, the search ends, and each run is remembered."""

import itertools
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos.cli_shrink import Ran, Trials
from chaos.model import Action, Trigger, UsageError
from chaos.shrink import (
    OutOfBudget,
    Rate,
    Schedule,
    Shrinker,
    mend,
    same_failure,
    weakened,
)

MOST = 9
WHOLE = tuple(
    Action(f"f{number}", "kill", "coordinator", Trigger(elapsed_s=number), 30.0)
    for number in range(MOST)
)
NEEDED = st.sets(st.integers(0, MOST - 1), min_size=1)


def ids(schedule: Schedule) -> set[str]:
    return {action.fault_id for action in schedule}


def no_weaker(_action: Action) -> tuple[Action, ...]:
    return ()


def quiet(_text: str) -> None:
    pass


@given(NEEDED)
def test_of_a_failure_that_needs_certain_faults_exactly_these_are_left(needed: set[int]) -> None:
    wanted, asked = {f"f{number}" for number in needed}, []

    def fails(schedule: Schedule) -> bool:
        asked.append(ids(schedule))
        return wanted <= ids(schedule)

    search = Shrinker(fails, quiet, no_weaker)
    assert search.shrink(WHOLE)
    assert ids(search.best) == wanted
    assert search.is_minimal
    assert len(asked) <= MOST * MOST + 3 * MOST
    assert len(asked) == len({frozenset(each) for each in asked}), "a schedule was run twice"


@given(st.lists(NEEDED, min_size=1, max_size=4))
def test_of_a_failure_with_several_causes_one_is_left_that_has_none_to_spare(
    causes: list[set[int]],
) -> None:
    wanted = [{f"f{number}" for number in cause} for cause in causes]
    search = Shrinker(lambda s: any(c <= ids(s) for c in wanted), quiet, no_weaker)
    search.shrink(WHOLE)
    assert ids(search.best) in wanted
    assert not any(cause < ids(search.best) for cause in wanted)


@given(st.integers(0, 2**64))
def test_a_failure_without_rhyme_or_reason_ends_the_search_all_the_same(noise: int) -> None:
    asked = itertools.count()

    def fails(schedule: Schedule) -> bool:
        next(asked)
        return len(schedule) == MOST or hash((noise, frozenset(ids(schedule)))) % 3 == 0

    search = Shrinker(fails, quiet, weakened)
    assert search.shrink(WHOLE)
    assert fails(search.best)
    assert next(asked) <= MOST * MOST + 3 * MOST + 1


def test_a_schedule_that_does_not_fail_is_not_shrunk() -> None:
    search = Shrinker(lambda schedule: False, quiet, no_weaker)
    assert not search.shrink(WHOLE)
    assert not search.is_minimal


def test_the_order_of_the_schedule_is_kept() -> None:
    search = Shrinker(lambda s: {"f2", "f7"} <= ids(s), quiet, no_weaker)
    search.shrink(WHOLE)
    assert [action.fault_id for action in search.best] == ["f2", "f7"]


def test_who_waited_for_a_dropped_fault_waits_for_what_that_one_waited_for() -> None:
    first, second, third = WHOLE[:3]
    second = replace(second, trigger=Trigger(after="f0"))
    third = replace(third, trigger=Trigger(after="f1", step_at_least=3))
    whole = (first, second, third)
    kept = mend((first, third), whole)
    assert kept is not None
    assert kept[1].trigger == Trigger(after="f0", step_at_least=3)
    alone = mend((third,), whole)
    assert alone is not None
    assert alone[0].trigger.after is None


def test_an_aim_at_the_target_of_a_dropped_fault_cannot_be_followed_and_is_not_run() -> None:
    zombie = replace(WHOLE[1], target="target of f0")
    asked: list[set[str]] = []

    def fails(schedule: Schedule) -> bool:
        asked.append(ids(schedule))
        return "f1" in ids(schedule)

    search = Shrinker(fails, quiet, no_weaker)
    search.shrink((WHOLE[0], zombie, WHOLE[2]))
    assert ids(search.best) == {"f0", "f1"}
    assert {"f1"} not in asked
    assert {"f1", "f2"} not in asked


def test_what_is_left_is_weakened_as_far_as_it_still_fails() -> None:
    strong = replace(WHOLE[0], kind="latency", params={"hold_ms": 4000, "name": "x"})

    def fails(schedule: Schedule) -> bool:
        return int(str(schedule[0].params["hold_ms"])) >= 900

    search = Shrinker(fails, quiet, weakened)
    search.shrink((strong,))
    assert search.best[0].params == {"hold_ms": 1000, "name": "x"}
    assert search.is_minimal


def test_a_kill_in_a_window_is_weakened_to_a_plain_kill() -> None:
    precise = replace(WHOLE[0], kind="kill_in_write_window", params={"min_step": 3})
    mildest, *_ = weakened(precise)
    assert (mildest.kind, mildest.params) == ("kill", {})


@pytest.mark.parametrize(
    ("failed", "runs", "expected"),
    [(0, 0, None), (2, 2, True), (1, 2, None), (0, 2, False), (1, 3, False), (2, 3, True)],
)
def test_a_rate_is_decided_as_soon_as_it_can_be(failed: int, runs: int, expected: Any) -> None:
    assert Rate(2, 3).decided(failed, runs) is expected


@pytest.mark.parametrize("word", ["", "3", "0/3", "4/3", "a/b", "-1/2", "1/1000", "1.5/2"])
def test_a_rate_that_is_none_is_a_usage_error(word: str) -> None:
    with pytest.raises(UsageError, match="K/N"):
        Rate.read(word)


def test_a_run_fails_the_same_way_only_if_all_that_broke_breaks_again() -> None:
    wanted = frozenset({"fenced_holder", "one_live_lease"})
    assert same_failure(wanted | {"steady_again"}, wanted)
    assert not same_failure(frozenset({"fenced_holder"}), wanted)
    assert not same_failure(wanted, frozenset())


def trials(folder: Path, outcomes: list[bool], *, seconds: float = 60.0) -> Trials:
    """Trials whose runs break the fence, or nothing, in this order."""
    given_out = iter(outcomes)

    def run(_schedule: Schedule) -> Ran:
        return Ran("somewhere", frozenset({"fenced_holder"} if next(given_out) else ()))

    ends_at = time.monotonic() + seconds
    return Trials(folder, frozenset({"fenced_holder"}), Rate(3, 3), ends_at, run, quiet)


def test_a_candidate_that_once_did_not_fail_is_not_run_again_at_three_of_three(
    tmp_path: Path,
) -> None:
    tried = trials(tmp_path, [True, False])
    assert not tried.fails(WHOLE)
    assert tried.runs_of(WHOLE) == 2


def test_what_was_run_is_known_to_the_next_call_also_with_a_torn_last_line(tmp_path: Path) -> None:
    assert trials(tmp_path, [True, True, True]).fails(WHOLE)
    with (tmp_path / "progress.jsonl").open("a") as stream:
        stream.write('{"schedule": "torn')
    again = trials(tmp_path, [])
    assert again.load() == 3
    assert again.fails(WHOLE)
    assert len(again.failures(WHOLE)) == 3


def test_without_time_left_nothing_is_run_and_what_was_found_stands(tmp_path: Path) -> None:
    late = trials(tmp_path, [], seconds=0.0)
    late.longest_s = 1.0
    with pytest.raises(OutOfBudget):
        late.fails(WHOLE)
    answers = iter([True, True])

    def fails(_schedule: Schedule) -> bool:
        try:
            return next(answers)
        except StopIteration as error:
            raise OutOfBudget from error

    search = Shrinker(fails, quiet, no_weaker)
    assert search.shrink(WHOLE)
    assert len(search.best) == MOST // 2
    assert not search.is_minimal
