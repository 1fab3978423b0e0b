"""Random storms: seeded choices that shift no other, the floor of workers, what joins by itself."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos import catalogue, registry, runner
from chaos.disturb import share_a_lane
from chaos.model import Action, ChaosError, Comeback
from chaos.schedule import Draw
from chaos.storm import EVERY_LANE, Aim, Shape, Template, choose, storm

TEMPLATES = {
    "kill": Template(aims=(Aim.WORKER, Aim.COORDINATOR), takes=True),
    "latency": Template(lambda draw, fault_id: {"ms": draw.integer(fault_id, "ms", 0, 999)}),
    "flip": Template(takes=True, checkpoints=2),
    "clock": Template(variant="clock"),
}
SHAPE = Shape(count=30, workers=4, floor=2)
SEEDS = st.integers(0, 2**63)


@settings(max_examples=30)
@given(SEEDS)
def test_the_same_seed_gives_the_same_storm_and_a_longer_one_begins_like_it(seed: int) -> None:
    short = storm(Draw(seed), TEMPLATES, SHAPE)
    assert short == storm(Draw(seed), TEMPLATES, SHAPE)
    longer = storm(Draw(seed), TEMPLATES, replace(SHAPE, count=40))
    assert [replace(a, deadline_s=0) for a in longer[:30]] == [
        replace(a, deadline_s=0) for a in short
    ]


@settings(max_examples=30)
@given(SEEDS)
def test_a_template_that_is_added_changes_only_the_faults_that_it_wins(seed: int) -> None:
    more = {**TEMPLATES, "new": Template()}
    pairs = zip(storm(Draw(seed), TEMPLATES, SHAPE), storm(Draw(seed), more, SHAPE), strict=True)
    for before, after in pairs:
        assert after == before or after.kind == "new"


@settings(max_examples=30)
@given(SEEDS)
def test_a_template_that_is_taken_out_changes_only_its_own_faults(seed: int) -> None:
    fewer = {kind: each for kind, each in TEMPLATES.items() if kind != "latency"}
    pairs = zip(storm(Draw(seed), TEMPLATES, SHAPE), storm(Draw(seed), fewer, SHAPE), strict=True)
    for before, after in pairs:
        assert after == before or before.kind == "latency"


def may_overlap(schedule: tuple[Action, ...]) -> list[Action]:
    """As many faults of a schedule that take workers as may be under way at the same time."""
    taking = [a for a in schedule if a.comeback is Comeback.RECLAIMED]
    together: list[Action] = []
    for action in taking:
        if not any(share_a_lane(action, other) for other in together):
            together.append(action)
    return together


@settings(max_examples=30)
@given(SEEDS, st.integers(2, 8), st.integers(0, 7))
def test_by_the_plan_alone_as_many_workers_as_the_floor_stay(
    seed: int, workers: int, floor: int
) -> None:
    shape = replace(SHAPE, workers=workers, floor=floor)
    schedule = storm(Draw(seed), TEMPLATES, shape)
    assert len(may_overlap(schedule)) <= max(0, workers - floor)


@settings(max_examples=30)
@given(SEEDS)
def test_two_faults_at_one_worker_never_overlap_and_others_than_workers_are_hit_alone(
    seed: int,
) -> None:
    schedule = storm(Draw(seed), TEMPLATES, SHAPE)
    for action in schedule:
        alone = not action.target.startswith("worker ")
        assert (action.lanes == (EVERY_LANE,)) is alone
        assert alone or action.target in action.lanes
        assert alone or action.trigger.role == action.target


@settings(max_examples=30)
@given(SEEDS)
def test_faults_come_at_the_stated_spacing(seed: int) -> None:
    times = [float(str(a.trigger.elapsed_s)) for a in storm(Draw(seed), TEMPLATES, SHAPE)]
    assert all(2 * n + 1 <= at <= 2 * n + 1.4 for n, at in enumerate(times))
    assert times == sorted(times)


def test_weights_count_and_every_target_comes_up() -> None:
    weights = {"a": 1.0, "b": 3.0, "never": 0.0}
    seen = Counter(choose(Draw(seed), "f", "x", weights) for seed in range(2000))
    assert set(seen) == {"a", "b"}
    assert 2.5 < seen["b"] / seen["a"] < 3.6
    targets = {a.target for a in storm(Draw(1), TEMPLATES, replace(SHAPE, count=100))}
    assert targets == {"worker 1", "worker 2", "worker 3", "worker 4", "coordinator"}


def test_what_the_stack_cannot_bear_is_left_out() -> None:
    kinds = {a.kind for a in storm(Draw(1), TEMPLATES, replace(SHAPE, count=100))}
    assert kinds == {"kill", "latency", "flip"}
    with_clock = replace(SHAPE, count=100, variants=("clock",))
    assert "clock" in {a.kind for a in storm(Draw(1), TEMPLATES, with_clock)}
    full = storm(Draw(1), TEMPLATES, replace(SHAPE, count=100, floor=4))
    assert {a.kind for a in full} == {"latency"}
    assert storm(Draw(1), {}, SHAPE) == ()


def test_what_faults_offer_is_found_beside_them_and_draws_what_they_understand() -> None:
    found = catalogue.templates()
    assert {"kill", "pause", "latency", "flip_bits", "toxiproxy_down"} <= set(found)
    assert set(found) <= set(registry.faults())
    for kind, template in found.items():
        params = [template.params(Draw(seed), "f") for seed in range(20)]
        assert all(each.keys() == params[0].keys() for each in params), kind


def test_a_template_that_is_none_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chaos.faults.kill.TEMPLATE", {"weight": 1})
    with pytest.raises(ChaosError, match=r"chaos\.faults\.kill: TEMPLATE is a dict"):
        catalogue.templates()


@pytest.mark.parametrize("count", [7, 90, 300])
def test_the_experiment_has_as_many_faults_as_it_is_told(count: int) -> None:
    experiment = registry.experiment("random_storm")
    plan, jobs = runner.prepare(experiment, runner.Options(count=count), {})
    assert (len(plan.schedule), plan.floor, plan.workers) == (count, 2, 4)
    assert len(jobs["storm"].task_params) == 64
    kinds = {action.kind for action in plan.schedule}
    assert count < 90 or len(kinds) > 15
