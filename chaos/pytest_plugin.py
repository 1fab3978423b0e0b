"""Experiments as tests: the mark `chaos`, the fixtures `chaos_run` and `run_experiment`, options.

A run that ends unknown fails its test, and so does a machine that cannot run it: never a skip.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from chaos import registry, runner
from chaos.model import ChaosError, JsonMap, Landed, Verdict
from chaos.ports import Machine
from chaos.runner import DEFAULT_OUT, DEFAULT_SEED, Options, Result
from chaos.schedule import Experiment

MARK = (
    "chaos(experiment, seed=None, workers=None, count=None): run this experiment before the test, "
    "which fails unless every fault landed and every invariant holds; None is what --chaos-seed "
    "or the experiment states"
)
OPTIONS = {"seed", "workers", "count", "planted"}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the harness."""
    group = parser.getgroup("chaos", "experiments on the composed stack")
    group.addoption("--chaos-seed", type=int, default=DEFAULT_SEED, help="default: %(default)s")
    group.addoption("--chaos-out", type=Path, default=DEFAULT_OUT, help="default: %(default)s")
    group.addoption(
        "--chaos-keep-failed", action="store_true", help="keep the stack of a failed run"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declare the mark."""
    config.addinivalue_line("markers", MARK)


@pytest.fixture(scope="session")
def chaos_machine() -> Machine:
    """Return this machine."""
    return registry.machine()


class ChaosRun:
    """Runs experiments for one test; `result` is that of the newest run, None before the first."""

    def __init__(self, options: Options, machine: Machine) -> None:
        self._options = options
        self._machine = machine
        self.result: Result | None = None

    def __call__(
        self, experiment: str | Experiment, *, check: bool = True, **how: int | str | None
    ) -> Result:
        """Run an experiment, by name or as it is, and return what came of it.

        `how` are seed, workers, count and planted. The test fails where the machine cannot run it,
        and, unless `check` is False, where the verdict is not valid.
        """
        if wrong := sorted(set(how) - OPTIONS):
            pytest.fail(f"chaos takes no {wrong[0]!r}, only {sorted(OPTIONS)}", pytrace=False)
        given = {name: value for name, value in how.items() if value is not None}
        options = replace(self._options, **given)  # type: ignore[arg-type]
        try:
            chosen = registry.experiment(experiment) if isinstance(experiment, str) else experiment
            self.result = runner.run(chosen, options, self._machine, print)
        except ChaosError as error:
            pytest.fail(f"cannot run {_name(experiment)}: {error}", pytrace=False)
        if self.result.exit_code == runner.EXIT_INTERRUPTED:
            raise KeyboardInterrupt
        cannot = self.result.exit_code == runner.EXIT_CANNOT_RUN
        if cannot or (check and self.result.exit_code != 0):
            pytest.fail(explain(self.result), pytrace=False)
        return self.result


def _name(experiment: str | Experiment) -> str:
    return experiment if isinstance(experiment, str) else experiment.name


@pytest.fixture
def chaos_run(request: pytest.FixtureRequest, chaos_machine: Machine) -> ChaosRun:
    """Return what runs experiments; the one that the test's mark names has been run."""
    options = Options(
        seed=request.config.getoption("--chaos-seed"),
        out=request.config.getoption("--chaos-out"),
        keep_failed=request.config.getoption("--chaos-keep-failed"),
    )
    made = ChaosRun(options, chaos_machine)
    if (mark := request.node.get_closest_marker("chaos")) is not None:
        if len(mark.args) != 1:
            pytest.fail("the mark chaos takes the name of one experiment first", pytrace=False)
        made(mark.args[0], **mark.kwargs)
    return made


@pytest.fixture(autouse=True)
def _chaos_of_the_mark(request: pytest.FixtureRequest) -> None:
    """Run the experiment of a marked test that does not ask for it by itself."""
    if request.node.get_closest_marker("chaos") is not None:
        request.getfixturevalue("chaos_run")


@pytest.fixture
def run_experiment(chaos_run: ChaosRun) -> Callable[[Experiment], Result]:
    """Return a function that runs an experiment and fails the test unless its verdict is valid."""
    return chaos_run


def explain(result: Result) -> str:
    """Return why a run is not valid, by faults and invariants, and where to read more."""
    judgement = result.judgement
    lines = [f"{judgement.experiment}, seed {judgement.seed}: {judgement.outcome}"]
    lines += [judgement.reason] if judgement.reason else []
    lines += [_told(fault) for fault in judgement.faults if fault["landed"] != Landed.LANDED]
    for found in judgement.findings:
        if found.verdict is not Verdict.VALID:
            lines.append(f"  {found.name} {found.verdict}: {found.detail}")
        if found.decided_at is not None:
            lines.append(f"    violated as soon as record {found.decided_at} was there")
    return "\n".join([*lines, f"see {result.folder / 'report.html'}"])


def _told(fault: JsonMap) -> str:
    evidence = fault["evidence"]
    reason = evidence.get("reason") if isinstance(evidence, dict) else None
    return f"  fault {fault['id']} ({fault['kind']}) {fault['landed']}: {reason or evidence}"
