"""The interval between saves follows from cost, failure rate and step time."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashruntime.checkpoint.cadence import Cadence, mtbf_s, optimum_s


def lost(interval_s, cost_s, mtbf):
    """The share of time lost per second of work: saving, and work done again after a failure."""
    return cost_s / interval_s + (interval_s + cost_s) / (2 * mtbf)


def test_it_is_youngs_interval_where_a_save_is_cheap():
    assert optimum_s(1.0, 20_000.0) == pytest.approx((2 * 20_000.0) ** 0.5, rel=0.01)


def test_a_save_that_costs_more_than_failures_leave_time_for_is_made_once_a_failure():
    assert optimum_s(500.0, 100.0) == 100.0


@given(st.floats(0.001, 50), st.floats(100, 1e6))
def test_half_and_double_of_it_lose_more(cost_s, mtbf):
    best = optimum_s(cost_s, mtbf)
    if cost_s < mtbf / 20:
        assert lost(best, cost_s, mtbf) <= min(
            lost(best / 2, cost_s, mtbf), lost(best * 2, cost_s, mtbf)
        )


def test_failures_and_time_without_any_correct_the_prior():
    assert mtbf_s(3600, 0, 0) == 3600
    assert mtbf_s(3600, 3600, 3) == 1800
    assert mtbf_s(3600, 86400, 0) > 3600


def saves(cadence, steps, step_s=1.0, stall_s=0.5, slow_s=0.0):
    """Train with a save that takes 3 steps behind the training; return the steps that saved."""
    now, busy_until, made = 0.0, -1, []
    for step in range(1, steps + 1):
        now += step_s + (slow_s if step <= busy_until else 0.0)
        cadence.step(now, saving=step <= busy_until)
        if cadence.is_due(now):
            now += stall_s
            cadence.saved(now, stall_s)
            busy_until = step + 3
            made.append(step)
    return made


def test_the_first_step_saves_to_measure_and_then_the_interval_holds():
    made = saves(Cadence(0.0, prior_s=3600.0), 400)
    gaps = [b - a for a, b in itertools.pairwise(made)]
    assert made[0] == 1
    assert all(abs(gap - optimum_s(0.5, 3600.0)) <= 4 for gap in gaps), gaps


def test_what_steps_lose_behind_a_save_counts_as_its_cost():
    quiet = saves(Cadence(0.0, prior_s=3600.0), 600)
    slowed = saves(Cadence(0.0, prior_s=3600.0), 600, slow_s=1.0)
    assert len(slowed) < len(quiet) / 1.5


def test_a_job_that_fails_often_saves_more_often():
    calm = saves(Cadence(0.0, prior_s=3600.0), 600)
    stormy = saves(Cadence(0.0, prior_s=3600.0, elapsed_s=600.0, failures=20), 600)
    assert len(stormy) > 2 * len(calm)


def test_a_cold_first_save_is_forgotten():
    cadence = Cadence(0.0, prior_s=3600.0)
    cadence.saved(10.0, 10.0)
    cadence.saved(200.0, 0.1)
    assert cadence.interval_s(200.0) == pytest.approx(optimum_s(0.1, 3800.0), rel=0.01)
