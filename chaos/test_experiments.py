"""Every experiment as a test: `pytest chaos/`, the long ones with `-m bench_stress`."""

from collections.abc import Callable

import pytest

from chaos import registry
from chaos.model import Verdict
from chaos.runner import Result
from chaos.schedule import Experiment

LONG = [pytest.mark.bench_stress, pytest.mark.timeout(900)]
EXPERIMENTS = [
    pytest.param(each, id=each.name, marks=[] if each.quick else LONG)
    for each in registry.experiments()
]


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_experiment(experiment: Experiment, run_experiment: Callable[[Experiment], Result]) -> None:
    """Every fault lands, every invariant holds, and the machine is clean afterwards."""
    assert run_experiment(experiment).judgement.verdict is Verdict.VALID
