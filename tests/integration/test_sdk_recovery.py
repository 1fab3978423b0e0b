"""Every action of the policy carried out by a local run, and its decisions made again."""

from pathlib import Path

import pytest

from flashruntime.recovery.incidents import Bounds
from flashruntime.recovery.replay import replay
from flashruntime.sdk import supervisor
from flashruntime.sdk.run import RunState
from tests.integration.sdk_runs import Bench

pytestmark = pytest.mark.integration
CRASH = "import os; os.kill(os.getpid(), 11)"


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def chosen(run: object, name: str) -> list[object]:
    events = run.events  # type: ignore[attr-defined]
    return [e.data.get(name) for e in events if e.type == "RECOVERY_ACTION_SELECTED"]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three tasks are an incident here, and a freeze takes two seconds."""
    bounds = Bounds(tasks=3, nodes=1, freeze_s=2.0)
    monkeypatch.setattr(supervisor, "INCIDENT", bounds)


@pytest.mark.usefixtures("quick")
def test_many_crashes_at_once_freeze_the_run_for_a_while(bench: Bench) -> None:
    run = bench.run(
        "import os, sys\nif os.environ['FLASHML_RESTART_COUNT'] == '0': os.kill(os.getpid(), 11)",
        "{i}",
        task_params=[{"i": i} for i in range(4)],
        options={"max_restarts": 2, "parallel": 4},
    )
    assert run.state is RunState.SUCCEEDED
    assert chosen(run, "action") == ["retry_task"] * 2 + ["freeze_automation"] * 2
    [frozen] = [e for e in run.events if e.type == "RECOVERY_FROZEN"]
    again = [e for e in run.events if e.type == "ATTEMPT_STARTED" and e.data["number"] == 1]
    late = [e for e in again if e.mono_ns - frozen.mono_ns >= 1.9e9]
    assert (len(again), len(late)) == (4, 2)


def test_storage_that_stays_away_pauses_the_run_and_the_next_goes_on(bench: Bench) -> None:
    """It ends with its state kept: the others are stopped, a new run in its place resumes."""
    code = """
    import os, sys, time
    from flashruntime.attempt import Attempt
    attempt = Attempt.from_env()
    found = attempt.resume()
    if found is None:
        attempt.save(3, {"w": b"x"})
        print("saved", flush=True)
    if os.path.exists(sys.argv[1]):
        if sys.argv[2] == "0": raise OSError(5, "Input/output error")
        time.sleep(600)
    attempt.log({"resumed": found.step})
    """
    flag = bench.output.parent / "broken"
    flag.touch()
    tasks = [{"i": 0}, {"i": 1}]
    options = {"max_restarts": 1, "parallel": 2}
    run = bench.run(code, str(flag), "{i}", task_params=tasks, options=options)
    assert run.state is RunState.FAILED
    assert (run.reason or "").startswith("paused: 2 failed attempts, max_restarts is 1; last: ")
    assert chosen(run, "action") == ["retry_task", "pause_job"]
    assert "submit again into the same output_dir" in str(chosen(run, "carried_out")[-1])
    flag.unlink()
    later = bench.run(code, str(flag), "{i}", task_params=tasks, options=options)
    assert later.state is RunState.SUCCEEDED
    assert [trial["resumed_from"] for trial in later.trials] == [3, 3]


def test_a_faulty_accelerator_says_that_there_is_no_other_node(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = bench.run(
        "import os\n"
        "if os.environ['FLASHML_RESTART_COUNT'] == '0':\n"
        "    raise RuntimeError('CUDA error: uncorrectable ECC error encountered')",
        options={"max_restarts": 1},
    )
    assert run.state is RunState.SUCCEEDED
    assert chosen(run, "action") == ["replace_node"]
    assert "one node" in str(chosen(run, "carried_out")[0])


def test_a_checkpoint_that_gives_the_same_crash_twice_is_named_to_the_next_attempt(
    bench: Bench,
) -> None:
    """Twice at the step of the resume; the third is told which step to leave out."""
    code = """
    import json, os, sys
    from flashruntime.attempt import Attempt
    suspect = os.environ.get("FLASHML_SUSPECT_STEP")
    if suspect is not None:
        json.dump({"suspect": int(suspect)}, open("metrics.json", "w"))
        sys.exit(0)
    attempt = Attempt.from_env()
    if attempt.resume() is None:
        attempt.save(7, {"w": b"bad"})
        attempt.report(9)
    raise RuntimeError("shape of the state is odd")
    """
    run = bench.run(code, options={"max_restarts": 5})
    assert run.state is RunState.SUCCEEDED, run.reason
    assert run.trials[0]["suspect"] == 7
    reasons = [str(reason) for reason in chosen(run, "reason")]
    assert "twice right after the resume from step 7, which is set aside" in reasons[-1]


def test_every_decision_of_a_run_can_be_made_again_from_its_events(bench: Bench) -> None:
    code = """
    import os, sys
    first = os.environ["FLASHML_RESTART_COUNT"] == "0"
    kind = sys.argv[1]
    if kind == "crash" and first: os.kill(os.getpid(), 11)
    if kind == "reset" and first: raise ConnectionResetError(104, "reset")
    if kind == "exit": print("bye"); sys.exit(3)
    if kind == "term" and first: os.kill(os.getpid(), 15)
    """
    kinds = [{"kind": kind} for kind in ("crash", "reset", "exit", "term")]
    options = {"max_restarts": 1, "parallel": 4}
    run = bench.run(code, "{kind}", task_params=kinds, options=options)
    found = list(replay(run.events))
    assert len(found) == 5
    assert [each.same for each in found] == [True] * 5
    assert {each.recorded.policy_version for each in found} == {
        e.data["policy_version"] for e in run.events if e.type == "FAILURE_CLASSIFIED"
    }
