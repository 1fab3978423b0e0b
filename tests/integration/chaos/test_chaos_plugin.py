"""The pytest plugin, as a user's own test file uses it."""

import pytest

from chaos import registry

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.integration

CONFTEST = """
import time
import pytest
from chaos import registry, runner
from chaos.model import Action, Landed, Receipt, Trigger
from chaos.schedule import Experiment
from chaos.testing import FakeMachine

pytest_plugins = ["chaos.pytest_plugin"]


class Kill:
    kind = "kill"
    landed = Landed.LANDED

    def undo(self, scene):
        return (("start_container", {"service": scene.target().container.service}),)

    def fire(self, scene):
        target = scene.target()
        scene.world.containers.kill(target.container)
        return {"lease_id": target.lease_id, "at_ns": time.monotonic_ns()}

    def receipt(self, scene, fired):
        return Receipt(self.landed, {"reason": "as told"}, fired["at_ns"], fired["lease_id"])


class Twin:
    name = "digits"

    def jobs(self, seed, count):
        from chaos.model import JobRequest
        return {"main": JobRequest("main", ("true",))}


class Missing(Kill):
    kind = "missing"
    landed = Landed.MISSED


def made(name, kind):
    action = Action("kill-1", kind, "holder of main", Trigger(step_at_least=5), 20.0)
    return Experiment(name, "kills", "digits", lambda draw: (action,), (), drain_s=20.0)


registry.experiments = lambda: (made("storm", "kill"), made("lost", "missing"))
registry.faults = lambda: {"kill": Kill(), "missing": Missing()}
registry.workload = lambda name: Twin()
runner.POLL_S = 0.001


@pytest.fixture(scope="session")
def chaos_machine():
    return FakeMachine()
"""


@pytest.fixture
def user(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A folder of a user's tests, whose machine is in memory."""
    for name in ("experiments", "faults", "workload"):
        monkeypatch.setattr(registry, name, getattr(registry, name))
    monkeypatch.setattr("chaos.runner.POLL_S", 0.001)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makeconftest(CONFTEST)
    pytester.makeini("[pytest]\naddopts = -p no:cacheprovider --strict-markers\n")
    return pytester


def run(user: pytest.Pytester, test: str, *options: str) -> pytest.RunResult:
    user.makepyfile(f"import pytest\n\n{test}")
    return user.runpytest_inprocess(*options)


def test_a_marked_test_runs_its_experiment_first_and_needs_no_fixture(
    user: pytest.Pytester,
) -> None:
    result = run(
        user,
        """
@pytest.mark.chaos("storm", seed=7)
def test_mine():
    pass
""",
        "--chaos-out",
        "runs",
    )
    result.assert_outcomes(passed=1)
    assert [path.name[-7:] for path in user.path.glob("runs/2*")] == ["storm-7"]


def test_the_fixture_gives_the_verdict_of_the_mark_and_runs_more_on_request(
    user: pytest.Pytester,
) -> None:
    result = run(
        user,
        """
@pytest.mark.chaos("storm")
def test_mine(chaos_run):
    assert chaos_run.result.judgement.verdict == "valid"
    assert chaos_run.result.judgement.seed == 5
    assert chaos_run("storm", seed=2).judgement.seed == 2
    assert chaos_run("lost", check=False).judgement.verdict == "unknown"
""",
        "--chaos-seed",
        "5",
    )
    result.assert_outcomes(passed=1)


def test_a_missed_fault_fails_the_test_and_is_told_readably(user: pytest.Pytester) -> None:
    result = run(
        user,
        """
@pytest.mark.chaos("lost")
def test_mine():
    raise AssertionError("the body was run")
""",
    )
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        [
            "*lost, seed 1: unknown",
            "*fault kill-1 (missing) missed: as told",
            "*faults_landed unknown: *",
            "*see chaos-runs/*/report.html",
        ]
    )
    result.stdout.no_fnmatch_line("*the body was run*")


@pytest.mark.parametrize(
    ("use", "told"),
    [
        ("@pytest.mark.chaos('stor')\ndef test_mine(): pass", "*did you mean 'storm'?*"),
        ("@pytest.mark.chaos()\ndef test_mine(): pass", "*name of one experiment first"),
        ("@pytest.mark.chaos('storm', tempo=3)\ndef test_mine(): pass", "*takes no 'tempo', only*"),
        (
            "@pytest.mark.chaos('storm', workers=99)\ndef test_mine(): pass",
            "*--workers 99: give 2*",
        ),
        ("def test_mine(chaos_run): chaos_run('nothing')", "*no experiment 'nothing'*"),
        ("def test_mine(chaos_run): chaos_run('lost')", "*lost, seed 1: unknown"),
    ],
)
def test_whatever_is_not_valid_fails_and_never_skips(
    user: pytest.Pytester, use: str, told: str
) -> None:
    result = run(user, use)
    outcomes = result.parseoutcomes()
    assert set(outcomes) - {"warnings", "warning"} <= {"failed", "errors", "error"}
    result.stdout.fnmatch_lines([told])


def test_an_unmarked_test_is_left_alone(user: pytest.Pytester) -> None:
    run(user, "def test_mine(): pass").assert_outcomes(passed=1)
    assert not (user.path / "chaos-runs").exists()


def test_the_mark_is_documented(user: pytest.Pytester) -> None:
    run(user, "", "--markers").stdout.fnmatch_lines(["@pytest.mark.chaos(experiment, seed=None*"])
