"""Kills in a save, on real processes: the window is hit, and both sides tell what is left."""

from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import composed
from benchmarks.faults import Strike
from benchmarks.scenario import Bench
from benchmarks.scenarios import (
    checkpoint_integrity,
    crash_storm,
    fault_recovery_matrix,
    lease_recovery_latency,
    proxy_overhead,
)
from benchmarks.scenarios.checkpoint_integrity import TRIAL, Kills, Naive, resumed
from benchmarks.schema import Target, Unavailable

pytestmark = pytest.mark.integration
Make = Callable[..., Bench]
STRIKES = (Strike(2, 0.0), Strike(3, 0.001), Strike(4, 0.0))


@pytest.fixture
def bench(tmp_path: Path) -> Make:
    def build(module: object, **fields: object) -> Bench:
        scenario = module.SCENARIO  # type: ignore[attr-defined]
        given = {"scenario": scenario, "scratch": tmp_path, "repeats": 1, "smoke": True}
        return Bench(**{**given, **fields})

    return build


def test_a_run_killed_in_a_save_goes_on_from_the_verified_step_before(bench: Make) -> None:
    here, kills = bench(checkpoint_integrity), Kills()
    source = TRIAL.source(here)
    for strike in STRIKES:
        resumed(here, source, strike, kills)
    assert kills.survived
    assert all(kills.survived), kills.wrong
    assert len(kills.survived) + kills.missed == len(STRIKES)


@pytest.mark.bench_stress
@pytest.mark.timeout(900)
def test_twenty_kills_in_a_save_are_all_survived(bench: Make) -> None:
    here = bench(checkpoint_integrity, repeats=5, smoke=False)
    checkpoint_integrity.run(here)
    assert here.rows[0].median == 1.0, here.rows[0].notes


@pytest.mark.bench_stress
@pytest.mark.timeout(900)
def test_twenty_dead_holders_are_all_detected_in_time(bench: Make) -> None:
    here = bench(lease_recovery_latency, repeats=5, smoke=False)
    lease_recovery_latency.run(here)
    found = {row.variant: row for row in here.rows}
    assert max(found["detection (MTTD)"].samples) <= 5.0
    assert len(found["claim round trip"].samples) == 100


@pytest.mark.bench_stress
@pytest.mark.timeout(900)
def test_a_storm_of_sixteen_is_completed(bench: Make) -> None:
    here = bench(crash_storm, smoke=False)
    crash_storm.run(here)
    completed = [row for row in here.rows if row.variant.startswith("completed")]
    assert [row.samples for row in completed] == [[16.0], [16.0]]


def test_a_file_overwritten_in_place_is_torn_by_the_same_kills(bench: Make) -> None:
    here = bench(checkpoint_integrity)
    naive = Naive(here, "pickle", "place")
    for strike in STRIKES:
        naive.killed(strike)
    told = naive.loaded("pickle in place")
    assert naive.kills.survived
    assert not any(naive.kills.survived), told


def test_every_fault_of_the_matrix_is_answered(bench: Make) -> None:
    here = bench(fault_recovery_matrix)
    fault_recovery_matrix.run(here)
    [row] = here.rows
    assert row.median == 5, row.notes


def test_a_dead_holder_is_detected_within_its_bound(bench: Make) -> None:
    here = bench(lease_recovery_latency)
    lease_recovery_latency.run(here)
    found = {row.variant: row for row in here.rows}
    detected = found["detection (MTTD)"]
    assert detected.median is not None
    assert detected.interval is not None
    assert 0 < detected.median <= 5.0
    assert found["claim round trip"].comparators


def test_without_an_engine_a_composed_scenario_says_so(
    bench: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    here = bench(lease_recovery_latency, target=Target.COMPOSE)
    with pytest.raises(Unavailable, match="cannot run here"):
        composed.run(here, "lease_recovery", seed=1)


def test_the_way_through_the_proxy_is_timed(bench: Make) -> None:
    here = bench(proxy_overhead, target=Target.COMPOSE)
    proxy_overhead.run(here)
    assert [row.variant for row in here.rows] == ["node heartbeat", "upload of 1 MiB"]
    assert all(row.median and row.comparators["direct"] for row in here.rows)
