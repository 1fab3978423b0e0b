"""Experiments as tests: the fixture `run_experiment` and its options.

A run that ends unknown fails its test, and so does a machine that cannot run it: never a skip.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from chaos import registry, runner
from chaos.model import ChaosError, Verdict
from chaos.ports import Machine
from chaos.runner import DEFAULT_OUT, DEFAULT_SEED, Options, Result
from chaos.schedule import Experiment


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the harness."""
    group = parser.getgroup("chaos", "experiments on the composed stack")
    group.addoption("--chaos-seed", type=int, default=DEFAULT_SEED, help="default: %(default)s")
    group.addoption("--chaos-out", type=Path, default=DEFAULT_OUT, help="default: %(default)s")
    group.addoption(
        "--chaos-keep-failed", action="store_true", help="keep the stack of a failed run"
    )


@pytest.fixture(scope="session")
def chaos_machine() -> Machine:
    """Return this machine."""
    return registry.machine()


@pytest.fixture
def run_experiment(
    request: pytest.FixtureRequest, chaos_machine: Machine
) -> Callable[[Experiment], Result]:
    """Return a function that runs an experiment and fails the test unless its verdict is valid."""
    options = Options(
        seed=request.config.getoption("--chaos-seed"),
        out=request.config.getoption("--chaos-out"),
        keep_failed=request.config.getoption("--chaos-keep-failed"),
    )

    def run(experiment: Experiment) -> Result:
        result, problem = _outcome(experiment, options, chaos_machine)
        if result is None:
            pytest.fail(f"cannot run {experiment.name}: {problem}", pytrace=False)
        if result.exit_code == runner.EXIT_INTERRUPTED:
            raise KeyboardInterrupt
        if result.exit_code != 0:
            pytest.fail(explain(result), pytrace=False)
        return result

    return run


def _outcome(
    experiment: Experiment, options: Options, machine: Machine
) -> tuple[Result | None, ChaosError | None]:
    try:
        return runner.run(experiment, options, machine, print), None
    except ChaosError as error:
        return None, error


def explain(result: Result) -> str:
    """Return why a run is not valid, and where to read more."""
    judgement = result.judgement
    lines = [f"{judgement.experiment}, seed {judgement.seed}: {judgement.verdict}"]
    lines += [judgement.reason] if judgement.reason else []
    lines += [
        f"  {found.name} {found.verdict}: {found.detail}"
        for found in judgement.findings
        if found.verdict is not Verdict.VALID
    ]
    return "\n".join([*lines, f"see {result.folder / 'report.html'}"])
