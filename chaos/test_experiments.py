"""Every experiment as a test: `pytest chaos/`; `-m bench_stress` the long ones, `-m soak` the rest.

All of `-m bench_stress` here takes 15 minutes at most on 2 cores.
"""

from collections.abc import Callable

import pytest

from chaos import registry
from chaos.model import Verdict
from chaos.runner import Result
from chaos.schedule import Experiment

MARKS = {
    "quick": [],
    "long": [pytest.mark.bench_stress, pytest.mark.timeout(900)],
    "rare": [pytest.mark.soak, pytest.mark.timeout(1800)],
}
EXPERIMENTS = [
    pytest.param(each, id=each.name, marks=MARKS[each.of_set]) for each in registry.experiments()
]


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_experiment(experiment: Experiment, run_experiment: Callable[[Experiment], Result]) -> None:
    """Every fault lands, every invariant holds, and the machine is clean afterwards."""
    assert run_experiment(experiment).judgement.verdict is Verdict.VALID
