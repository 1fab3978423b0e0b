"""Local runs: modes, limits, restarts, records, and what is left when their submitter dies."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import flashruntime as flash
from flashruntime.errors import Conflict
from flashruntime.launch.environment import HOOK_DIR
from flashruntime.launch.local import LocalLauncher, LocalProcess
from flashruntime.launch.spec import LaunchSpec
from flashruntime.protocol.events import Event
from flashruntime.sdk import home, supervisor
from flashruntime.sdk import submit as submitting
from flashruntime.sdk.submit import submit_through
from tests.integration.sdk_runs import PATIENCE_S, ROOT, Bench, await_gone, fifo_at

pytestmark = pytest.mark.integration
SUCCEEDED, FAILED, CANCELLED = (flash.RunState(s) for s in ("SUCCEEDED", "FAILED", "CANCELLED"))
SLEEPER = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(600)"


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture
def ready(tmp_path: Path) -> Path:
    return fifo_at(tmp_path / "ready")


def begun(ready: Path) -> int:
    """Wait for SLEEPER to write its process id."""
    with ready.open() as file:
        return int(file.read())


def test_a_process_is_given_the_environment_and_the_layout_of_the_contract(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_SECRET_TOKEN", "hunter2")
    run = bench.run(
        "import json, os; json.dump(dict(os.environ), open('metrics.json', 'w'))",
        env={"MINE": "1", "FLASHML_JOB_ID": "forged"},
    )
    env, out = run.trials[0], bench.output
    assert env["FLASHML_OUTPUT_DIR"] == str(out / "local/task-000")
    assert env["FLASHML_CKPT_DIR"] == str(out / "local/ckpt")
    assert (env["FLASHML_JOB_ID"], env["FLASHML_RESTART_COUNT"]) == (run.job_id, "0")
    assert env["FLASHML_ATTEMPT_ID"] == run.attempts[0].attempt_id
    assert (env["PYTHONUNBUFFERED"], env["MINE"]) == ("1", "1")
    assert "MY_SECRET_TOKEN" not in env, "F15"
    assert str(env["PYTHONPATH"]).startswith(str(HOOK_DIR))
    assert (out / "local/task-000/launcher.log").is_file()


def test_a_fan_out_gives_each_task_its_own_directory_and_result(bench: Bench) -> None:
    run = bench.run(
        """
        import json, os, sys
        json.dump({"loss": float(sys.argv[1]), "dir": os.environ["FLASHML_CKPT_DIR"]},
                  open(os.environ["FLASHML_OUTPUT_DIR"] + "/metrics.json", "w"))
        """,
        "{x}",
        task_params=[{"x": x} for x in ("nan", 0.5, 0.4, "nan")],
        outputs=flash.OutputSpec(primary_metric="loss", maximize=False),
    )
    assert run.state is SUCCEEDED
    assert [trial["params"] for trial in run.trials][1:3] == [{"x": 0.5}, {"x": 0.4}]
    places = [trial["dir"] for trial in run.trials]
    assert places == [str(bench.output / f"local-00{i}/ckpt") for i in range(4)]
    best = run.best_trial()
    assert best is not None
    assert best["params"] == {"x": 0.4}, "case 085"
    assert best == run.best_trial("loss", maximize=False)


def test_slots_bound_how_many_tasks_run_at_once(bench: Bench, tmp_path: Path) -> None:
    """Two tasks meet; a third in the same moment would see three files."""
    (tmp_path / "here").mkdir()
    run = bench.run(
        """
        import os, sys, time
        here = sys.argv[1]
        own = os.path.join(here, sys.argv[2])
        open(own, "w").close()
        deadline = time.monotonic() + 10
        peak = 0
        while peak < 2 and time.monotonic() < deadline and not os.path.exists(here + "/met"):
            peak = max(peak, len([n for n in os.listdir(here) if n != "met"]))
        open(here + "/met", "w").close()
        peak = max(peak, len([n for n in os.listdir(here) if n != "met"]))
        os.unlink(own)
        open("metrics.json", "w").write('{"peak": %d}' % peak)
        """,
        str(tmp_path / "here"),
        "{i}",
        task_params=[{"i": i} for i in range(4)],
        options={"parallel": 2},
    )
    assert run.state is SUCCEEDED
    assert max(int(str(trial["peak"])) for trial in run.trials) == 2


def test_a_trial_that_fails_fast_stops_the_fan_out(bench: Bench, ready: Path) -> None:
    """F6: the others are stopped or never begun, and the reason names the trial."""
    run = bench.run(
        """
        import os, sys, time
        if sys.argv[1] == "0":
            raise ValueError("bad lr")
        time.sleep(600)
        """,
        "{i}",
        task_params=[{"i": i} for i in range(5)],
        options={"parallel": 2, "max_restarts": 3},
    )
    assert run.state is FAILED
    assert run.reason.startswith("task 0: ValueError: bad lr [rule ")
    states = [trial["state"] for trial in run.trials]
    assert states == ["FAILED", *["CANCELLED"] * 4]
    assert len(run.attempts) == 2


def test_a_trial_whose_restarts_are_spent_leaves_the_others_alone(bench: Bench) -> None:
    run = bench.run(
        "import sys; sys.exit(int(sys.argv[1]))", "{code}",
        task_params=[{"code": 3}, {"code": 0}, {"code": 0}], options={"parallel": 1},
    )  # fmt: skip
    assert run.state is FAILED
    assert [trial["state"] for trial in run.trials] == ["FAILED", "SUCCEEDED", "SUCCEEDED"]
    assert "1 of 3 tasks failed; task 0: exit code 3" in (run.reason or "")


def test_a_restart_resumes_from_the_checkpoint_and_keeps_each_log(bench: Bench) -> None:
    run = bench.run(CHECKPOINTER, "3", "5", options={"max_restarts": 1})
    assert run.state is SUCCEEDED
    [trial] = run.trials
    assert (trial["resumed_from"], trial["attempts"], trial["last"]) == (3, 2, 5)
    logs = [(run.output_dir / attempt.log).read_text() for attempt in run.attempts]
    assert ["start 0" in log for log in logs] == [True, False]
    assert "start 3" in logs[1]
    assert (bench.output / "local/ckpt/step-000005/manifest.json").is_file()
    assert (bench.output / "local/task-000-r1/launcher.log").is_file()


CHECKPOINTER = """
import os, sys
from flashruntime.attempt import Attempt
attempt = Attempt.from_env()
found = attempt.resume()
start = found.step if found else 0
print("start", start)
for step in range(start + 1, int(sys.argv[2]) + 1):
    attempt.save(step, {"w": b"%d" % step})
    if step == int(sys.argv[1]) and start == 0: os.kill(os.getpid(), 9)
attempt.log({"last": step})
"""


def test_resubmitting_keeps_the_history_and_goes_on_from_the_checkpoints(bench: Bench) -> None:
    """F13."""
    first = bench.run(CHECKPOINTER, "3", "5")
    second = bench.run(CHECKPOINTER, "3", "5")
    assert (first.state, second.state) == (FAILED, SUCCEEDED)
    assert second.trials[0]["resumed_from"] == 3
    [earlier] = second.history
    assert (earlier.job_id, earlier.state) == (first.job_id, FAILED)
    assert earlier.reason == first.reason
    kept = json.loads(second.run_json_path.read_text())
    assert kept["contract"] == "viewer_v1"
    assert [item["job_id"] for item in kept["history"]] == [first.job_id]
    logs = sorted(path.parent.name for path in bench.output.glob("local/*/launcher.log"))
    assert logs == ["task-000", "task-000-r1"]
    journal = (bench.output / "journal.jsonl").read_text().splitlines()
    ids = [json.loads(line)["id"] for line in journal]
    assert ids == list(range(1, len(ids) + 1))


def test_checkpoints_of_other_params_are_set_aside(bench: Bench) -> None:
    code = "import os, sys; open(os.environ['FLASHML_CKPT_DIR'] + '/mark', 'x').close()"
    bench.run(code, "{x}", task_params=[{"x": 1}])
    run = bench.run(code, "{x}", task_params=[{"x": 2}])
    assert run.state is SUCCEEDED
    assert (bench.output / "local-000.old-1/ckpt/mark").is_file()
    assert [e.data for e in run.events if e.type == "TASK_SET_ASIDE"] == [
        {"directory": "local-000.old-1"}
    ]


def test_a_second_run_in_a_directory_that_is_in_use_is_refused(bench: Bench, ready: Path) -> None:
    """F11."""
    run = bench.run(SLEEPER, str(ready), options={"wait": False})
    pid = begun(ready)
    with pytest.raises(Conflict, match=f"in use by another run.*{os.getpid()}"):
        bench.run("pass")
    assert run.cancel() is CANCELLED
    await_gone(pid)
    assert bench.run("pass").state is SUCCEEDED


def test_cancel_ends_the_whole_tree_and_says_so(bench: Bench, ready: Path) -> None:
    run = bench.run(
        "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[2], sys.argv[1]])",
        str(ready),
        SLEEPER,
        options={"wait": False},
    )
    assert run.state in {flash.RunState.PENDING, flash.RunState.RUNNING}
    pid = begun(ready)
    assert run.cancel(PATIENCE_S) is CANCELLED
    await_gone(pid)
    assert run.reason == "cancelled by the user"
    assert run.attempts[0].state is CANCELLED
    assert json.loads(run.run_json_path.read_text())["state"] == "CANCELLED"


def test_a_run_can_be_cancelled_from_another_process(bench: Bench, ready: Path) -> None:
    run = bench.run(SLEEPER, str(ready), options={"wait": False})
    begun(ready)
    code = "import sys; from flashruntime.cli import main; sys.exit(main(['cancel', sys.argv[1]]))"
    subprocess.run([sys.executable, "-c", code, str(bench.output)], check=True, cwd=ROOT)
    assert run.wait(PATIENCE_S) is CANCELLED


def test_a_run_that_takes_too_long_is_ended_with_its_stacks(bench: Bench) -> None:
    """F9: the wall clock."""
    run = bench.run(
        "def forever():\n    import time; time.sleep(600)\nforever()",
        options={"timeout_s": 0.6, "max_restarts": 3},
    )
    assert (run.state, len(run.attempts)) == (FAILED, 1)
    assert run.reason == "the run exceeded timeout_s=0.6"
    assert "in forever" in run.logs()


def test_a_hang_is_found_its_stacks_shown_and_the_attempt_restarted(bench: Bench) -> None:
    """F9: no progress; what prints goes on."""
    run = bench.run(
        """
        import os, time
        def stuck(): time.sleep(600)
        for i in range(12): print(i); time.sleep(0.1)
        if os.environ["FLASHML_RESTART_COUNT"] == "0": stuck()
        """,
        no_progress_s=1.0,
        options={"max_restarts": 1},
    )
    assert run.state is SUCCEEDED
    first = run.attempts[0]
    assert "no output and no new step for 1 s" in (first.reason or "")
    assert "in stuck" in (run.output_dir / first.log).read_text()
    assert [e.data["stacks"] for e in run.events if e.type == "ATTEMPT_HUNG"] == [1]


class Slow(LocalLauncher):
    """Its processes get no processor from the moment they are asked for their stacks on."""

    def launch(self, spec: LaunchSpec, on_end: Callable[[], None] = lambda: None) -> LocalProcess:
        return SlowProcess(spec, on_end, lambda: None)


class SlowProcess(LocalProcess):
    looks = 0

    def dump_stacks(self) -> int:
        assert self.pid is not None
        os.kill(self.pid, signal.SIGSTOP)
        return super().dump_stacks()

    @property
    def is_dumping(self) -> bool:
        assert self.pid is not None
        self.looks += 1
        if self.looks == 10:
            os.kill(self.pid, signal.SIGCONT)
        return super().is_dumping


@pytest.mark.parametrize("limits", [{"no_progress_s": 1.0}, {"timeout_s": 1.0}])
def test_stacks_are_waited_for_on_a_busy_machine(bench: Bench, limits: dict[str, float]) -> None:
    bench.script("def stuck():\n    import time; time.sleep(600)\nstuck()")
    workload = flash.CommandWorkload(
        [sys.executable, "train.py"],
        source=bench.source,
        no_progress_s=limits.get("no_progress_s"),
    )
    run = submit_through(Slow(), workload, bench.output, timeout_s=limits.get("timeout_s"))
    assert run.wait(PATIENCE_S) is FAILED
    assert "in stuck" in run.logs()


FORKING = """
import os, sys, time, flashruntime as flash
run = flash.submit(flash.CommandWorkload(["cat", sys.argv[2]]), sys.argv[1], wait=False)
again = flash.submit(flash.CommandWorkload("true"), sys.argv[1] + "-2")
"""


def test_a_fork_of_the_submitter_ends_at_once_and_leaves_the_run_alone(
    bench: Bench, ready: Path
) -> None:
    code = FORKING + textwrap.dedent(
        """
        if os.fork() == 0:
            try: run.wait()
            except flash.InvalidInput as error: print(error, flush=True)
            sys.exit(7)
        print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
        open(sys.argv[2], "w").close()
        print(run.wait(), flush=True)
        """
    )
    argv = [sys.executable, "-c", code, str(bench.output), str(ready)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=10, cwd=ROOT, check=False)
    told, *rest = done.stdout.splitlines()
    assert "is driven by process" in told
    assert rest == ["7", "SUCCEEDED"], done.stderr


def test_a_fork_that_lives_on_does_not_keep_the_directory(bench: Bench, ready: Path) -> None:
    code = FORKING + textwrap.dedent(
        """
        pid = os.fork()
        if pid == 0: time.sleep(600)
        open(sys.argv[2], "w").close()
        run.wait()
        print(flash.submit(flash.CommandWorkload("true"), sys.argv[1]).state, flush=True)
        os.kill(pid, 9)
        """
    )
    argv = [sys.executable, "-c", code, str(bench.output), str(ready)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30, cwd=ROOT, check=False)
    assert done.stdout.split() == ["SUCCEEDED"], done.stderr


def test_a_run_leaves_room_before_it_writes_its_end(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk the copy of the source is all that there is to give."""
    copies: list[int] = []

    def look(event: Event) -> None:
        copies.append(len(list(bench.output.glob(".source-*"))))

    monkeypatch.setattr(submitting, "watcher", lambda *_: look)
    bench.run("print(1)", options={"max_restarts": 1})
    assert copies[-1] == 0
    assert max(copies) == 1


def test_0_restarts_are_exactly_one_attempt_also_after_a_sigterm(bench: Bench) -> None:
    """Case 133."""
    run = bench.run("import os; os.kill(os.getpid(), 15)")
    assert (run.state, len(run.attempts)) == (FAILED, 1)
    assert str(run.attempts[0].failure_class) == "preemption"


def test_a_preemption_spends_no_restart(bench: Bench) -> None:
    """Case 131."""
    run = bench.run(
        "import os; os.environ['FLASHML_RESTART_COUNT'] == '3' or os.kill(os.getpid(), 15)",
        options={"max_restarts": 1},
    )
    assert (run.state, len(run.attempts)) == (SUCCEEDED, 4)


def test_the_source_may_be_the_output_directory_again_and_again(bench: Bench) -> None:
    code = "import os; print(sorted(os.listdir()))"
    for _ in range(3):
        run = bench.run(code, options={"output_dir": bench.source, "max_restarts": 1})
        assert run.logs() == "['train.py']\n"


def test_a_source_that_is_not_there_ends_the_run_with_a_reason(tmp_path: Path) -> None:
    """F8."""
    work = flash.CommandWorkload("true", source=tmp_path / "nothing")
    run = flash.submit(work, tmp_path / "out", max_restarts=3)
    assert (run.state, len(run.attempts)) == (FAILED, 1)
    assert "is not a directory" in (run.reason or "")


def test_a_driver_that_dies_ends_the_run_and_its_processes(
    bench: Bench, ready: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("bug")

    monkeypatch.setattr(supervisor, "conclude", broken)
    go = fifo_at(bench.source.parent / "go")
    run = bench.run(
        """
        import os, sys, time
        if sys.argv[1] == "0":
            open(sys.argv[3]).read(); sys.exit()
        open(sys.argv[2], "w").write(str(os.getpid())); time.sleep(600)
        """,
        "{i}", str(ready), str(go),
        task_params=[{"i": 0}, {"i": 1}], options={"wait": False, "parallel": 2},
    )  # fmt: skip
    pid = begun(ready)
    go.write_text("")
    assert run.wait(PATIENCE_S) is FAILED
    assert run.reason == "the driver failed: RuntimeError: bug"
    await_gone(pid)
    assert not home.is_held(bench.output)


def submitter(bench: Bench, ready: Path, after: str) -> subprocess.Popen[bytes]:
    """Another process that submits SLEEPER, and then does something else."""
    bench.script(SLEEPER)
    code = f"""
        import sys, signal, flashruntime as flash
        work = flash.CommandWorkload([sys.executable, "train.py", {str(ready)!r}],
                                     source={str(bench.source)!r})
        flash.submit(work, {str(bench.output)!r}, wait=False)
        {after}
    """
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], env=env)


def test_killing_the_submitter_leaves_no_process_behind(bench: Bench, ready: Path) -> None:
    """F10; the next run tells of the one that was interrupted."""
    process = submitter(bench, ready, "signal.pause()")
    pid = begun(ready)
    process.kill()
    process.wait()
    await_gone(pid)
    run = bench.run("pass")
    assert run.state is SUCCEEDED
    assert [item.reason for item in run.history] == ["its submitter ended before it"]


def test_a_submitter_that_ends_ends_its_run_too(bench: Bench, ready: Path) -> None:
    process = submitter(bench, ready, f"open({str(ready)!r}).read()")
    assert process.wait(PATIENCE_S) == 0
    document = json.loads((bench.output / "run.json").read_text())
    assert (document["state"], document["reason"]) == ("CANCELLED", "the submitting process ended")


def test_an_interrupt_while_waiting_cancels_the_run(bench: Bench, ready: Path) -> None:
    def interrupt() -> None:
        begun(ready)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        bench.run(SLEEPER, str(ready))
    assert json.loads((bench.output / "run.json").read_text())["state"] == "CANCELLED"


def test_43_a_crash_loop_without_progress_ends_early(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case 043, with the wait shortened: 50 restarts are allowed, 8 equal failures are enough."""
    monkeypatch.setattr("flashruntime.recovery.policy.backoff_s", lambda *_: 0.0)
    run = bench.run("import sys; sys.exit(1)", options={"max_restarts": 50})
    assert (run.state, len(run.attempts)) == (FAILED, 8)
    assert "would not help" in (run.reason or "")


@pytest.fixture
def torchrun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for torch.distributed.run where there is no torch: two ranks, one error file."""
    place = tmp_path / "site" / "torch" / "distributed"
    place.mkdir(parents=True)
    (place / "run.py").write_text(
        textwrap.dedent(
            """
            import json, os, subprocess, sys
            script = next(i for i, word in enumerate(sys.argv) if word.endswith(".py") and i)
            ranks = [subprocess.Popen([sys.executable, *sys.argv[script:]],
                     env={**os.environ, "RANK": str(rank)}) for rank in range(2)]
            codes = [rank.wait() for rank in ranks]
            if any(codes):
                message = {"message": {"message": "ValueError: from torchrun"}}
                json.dump(message, open(os.environ["TORCHELASTIC_ERROR_FILE"], "w"))
            class ChildFailedError(Exception): pass
            if any(codes): raise ChildFailedError("train.py FAILED")
            """
        )
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'site'}:{ROOT}")
    monkeypatch.setenv("FLASHML_WARM_START", "0")
    return place


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import os\nif os.environ['RANK'] == '1': raise ValueError('heads')", "ValueError: heads"),
        ("import os; os._exit(int(os.environ['RANK']))", "ValueError: from torchrun"),
    ],
)
def test_under_torchrun_the_error_of_the_rank_is_the_reason(
    bench: Bench, torchrun: Path, code: str, words: str
) -> None:
    """F3: it fails fast, and the wrapper's own exception is never the cause."""
    resources = flash.Resources(nproc_per_node=2)
    run = bench.run(code, resources=resources, options={"max_restarts": 3})
    assert (run.state, len(run.attempts)) == (FAILED, 1)
    assert run.reason is not None
    assert run.reason.startswith(f"{words} [rule ")


def test_a_progress_line_is_shown_where_it_is_asked_for(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    options: dict[str, Any] = {"watch": True}
    bench.run("import sys; sys.exit(2)", "{i}", task_params=[{"i": 0}], options=options)
    shown = capsys.readouterr().err
    assert "RECOVERY_ACTION_SELECTED fail_job exit code 2" in shown
    assert "JOB_FAILED" in shown
