"""Public bug reports as local runs; the numbers are those of the catalogue of cases."""

import json
import tomllib
from pathlib import Path

import pytest

from flashruntime.protocol.failures import FailureClass
from flashruntime.sdk.run import Run, RunState
from tests.integration.sdk_runs import ROOT, Bench

pytestmark = pytest.mark.integration
USER = FailureClass.APPLICATION_ERROR
RESOURCE = FailureClass.RESOURCE_EXHAUSTED
CRASH = FailureClass.WORKER_CRASH


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def failed_once(run: Run) -> str:
    assert (run.state, len(run.attempts)) == (RunState.FAILED, 1)
    return (run.reason or "").partition(" [rule ")[0]


def test_001_an_error_that_the_script_survived_is_not_the_cause(bench: Bench) -> None:
    run = bench.run(
        """
        import traceback
        class OutOfMemoryError(RuntimeError): pass
        try: raise OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        except OutOfMemoryError: traceback.print_exc()
        for s in range(200): print("step", s, "loss", 1/(s+1))
        print({}["val_acc"])
        """,
        options={"max_restarts": 3},
    )
    assert failed_once(run) == "KeyError: 'val_acc'"
    assert run.attempts[0].failure_class is USER


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        pytest.param("raise ConnectionResetError(104, 'reset')", "communication_error", id="011"),
        pytest.param("import os; os.kill(os.getpid(), 9)", "worker_crash", id="015"),
        pytest.param("import warnings, sys; warnings.warn('x'); sys.exit(1)", "unknown", id="023"),
    ],
)
def test_a_failure_that_may_pass_is_tried_again_after_a_wait(
    bench: Bench, code: str, kind: str
) -> None:
    run = bench.run(code, options={"max_restarts": 1})
    assert [attempt.failure_class for attempt in run.attempts] == [kind, kind]
    waits = [e.data["backoff_s"] for e in run.events if e.type == "RECOVERY_ACTION_SELECTED"]
    assert waits[0] > 0
    assert "max_restarts is 1" in (run.reason or "")
    assert "memory" not in (run.reason or ""), "015: no cause without evidence"


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        pytest.param(
            "raise RuntimeError('DataLoader worker (pid 61) is killed by signal: Bus error.')",
            RESOURCE, "shared memory", id="013",
        ),
        pytest.param(
            "f = open('/dev/full', 'wb'); f.write(b'x'); f.flush()", RESOURCE, "Errno 28", id="019"
        ),
        pytest.param(
            "print('INFO apex not available (ImportError: No module)'); "
            "import os; os.kill(os.getpid(), 9)",
            CRASH, "SIGKILL", id="025",
        ),
        pytest.param(
            "print('<<<\\nTraceback (most recent call last):\\n  File \"x.py\", line 1\\n"
            "torch.cuda.OutOfMemoryError: CUDA out of memory.\\n>>>'); "
            "import os; os.kill(os.getpid(), 9)",
            CRASH, "SIGKILL", id="027",
        ),
    ],
)  # fmt: skip
def test_the_strongest_evidence_names_the_failure(
    bench: Bench, code: str, kind: FailureClass, words: str
) -> None:
    run = bench.run(code)
    assert words in failed_once(run)
    assert run.attempts[0].failure_class is kind


AREA_A = {
    situation["id"]: situation
    for situation in tomllib.loads(
        (ROOT / "tests/unit/recovery/corpus/area_a.toml").read_text("utf-8")
    )["situation"]
}


@pytest.mark.parametrize(
    "case",
    ["003A", "003B", "005", "007", "007-after", "009", "009-134", "021", "021-optimizer", "039",
     "041"],
)  # fmt: skip
def test_a_script_that_prints_what_was_reported_ends_as_it_should(bench: Bench, case: str) -> None:
    """The script of the corpus, run for real: whether only the missing budget ended it, and why."""
    label = AREA_A[case]
    run = bench.run(label["code"])
    assert run.state is RunState.FAILED
    [chosen] = [e.data for e in run.events if e.type == "RECOVERY_ACTION_SELECTED"]
    assert chosen["failure_class"] in label["classes"]
    assert label.get("reason", "") in str(chosen["reason"])
    assert chosen["exhausted"] == label["restart"]


def test_041_no_process_of_an_attempt_outlives_it(bench: Bench) -> None:
    """The second attempt looks for the child that the first left behind, deaf to SIGTERM."""
    run = bench.run(
        """
        import os, signal, subprocess, sys, time
        if os.environ["FLASHML_RESTART_COUNT"] == "0":
            deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); print(1, flush=True)"
            child = subprocess.Popen([sys.executable, "-c", deaf + "; time.sleep(600)"],
                                     stdout=subprocess.PIPE, start_new_session=True)
            child.stdout.readline()
            open(os.environ["FLASHML_CKPT_DIR"] + "/pid", "w").write(str(child.pid))
            os.kill(os.getpid(), signal.SIGKILL)
        pid = open(os.environ["FLASHML_CKPT_DIR"] + "/pid").read()
        assert not os.path.exists("/proc/" + pid), pid
        """,
        options={"max_restarts": 1},
    )
    assert (run.state, len(run.attempts)) == (RunState.SUCCEEDED, 2), run.reason


def test_017_a_script_that_ends_well_half_way_has_missing_outputs(bench: Bench) -> None:
    run = bench.run(
        """
        import os, signal, sys
        signal.signal(signal.SIGTERM, lambda *a: sys.exit(0))
        os.kill(os.getpid(), signal.SIGTERM)
        open("model.bin", "w").write("never reached")
        """,
        outputs=["model.bin"],
        options={"max_restarts": 3},
    )
    assert "model.bin: not found" in failed_once(run)


def test_029_a_line_of_70000_characters_costs_nothing(bench: Bench) -> None:
    run = bench.run("print('x' * 70_000); print('after'); import sys; sys.exit(3)")
    failed_once(run)
    assert run.attempts[0].exit_code == 3
    assert run.logs().endswith("x\nafter\n")


def test_031_a_progress_bar_is_shown_by_its_last_state(bench: Bench) -> None:
    run = bench.run(
        r"""
        import sys
        for i in range(5000): sys.stderr.write(f"\r{i/50:.0f}%|####| {i}/5000")
        sys.stderr.write("\n"); raise KeyError("epoch")
        """
    )
    assert failed_once(run) == "KeyError: 'epoch'"
    assert run.logs().splitlines()[0] == "100%|####| 4999/5000"


def test_033_bytes_that_are_no_text_neither_stop_nor_hide_the_output(bench: Bench) -> None:
    run = bench.run(
        r"""
        import sys
        sys.stdout.buffer.write(b'caf\xe9 \x97 \xff\xfe\x00\n')
        for i in range(200_000): print('line', i)
        print('END')
        """
    )
    assert run.state is RunState.SUCCEEDED
    assert run.logs(2) == "line 199999\nEND\n"


def test_f12_a_line_of_1_gb_is_survived_and_its_end_is_shown(bench: Bench) -> None:
    run = bench.run(
        """
        import os, sys
        os.ftruncate(1, 1 << 30)
        os.lseek(1, 0, os.SEEK_END)
        print("\\nValueError: not so", flush=True)
        sys.exit(3)
        """
    )
    assert "not so" in run.logs()
    assert run.attempts[0].exit_code == 3
    assert (run.output_dir / run.attempts[0].log).stat().st_size > 1 << 30


def test_035_the_last_words_before_a_kill_are_in_the_log(bench: Bench) -> None:
    run = bench.run("import os; print('about to load shard 7'); os.kill(os.getpid(), 9)")
    assert run.logs() == "about to load shard 7\n"


def test_037_outputs_of_a_crashed_attempt_are_not_thrown_away(bench: Bench) -> None:
    """It counts as failed, for nobody knows whether the file is whole; a restart resumes."""
    run = bench.run(
        "open('model.bin', 'w').write('final'); import os; os.kill(os.getpid(), 11)",
        outputs=["model.bin"],
    )
    assert "SIGSEGV" in failed_once(run)
    [artifact] = run.artifacts
    assert (artifact.path, artifact.accepted) == ("model.bin", False)
    assert (run.output_dir / artifact.file).read_text() == "final"


def test_075_nan_in_metrics_stays_out_of_json_and_of_the_comparison(bench: Bench) -> None:
    run = bench.run('open("metrics.json", "w").write(\'{"loss": NaN, "lr": Infinity, "x": 1}\')')
    [trial] = run.trials
    assert (trial["loss"], trial["lr"], trial["x"]) == (None, None, 1)
    json.loads(run.run_json_path.read_text(), parse_constant=pytest.fail)
    assert run.best_trial("loss") is None


@pytest.mark.parametrize("text", ['[{"acc":0.9}]', "null", '"ok"', "0.9", '{"a":1}\n{"a":2}', ""])
def test_077_metrics_of_another_shape_are_a_warning(bench: Bench, text: str) -> None:
    run = bench.run(f"open('metrics.json', 'w').write({text!r})")
    assert run.state is RunState.SUCCEEDED
    assert set(run.trials[0]) == {"task", "state", "params", "resumed_from", "attempts"}
    [accepted] = [event for event in run.events if event.type == "TASK_COMMIT_ACCEPTED"]
    assert accepted.data["warnings"]


def test_079_numbers_that_do_not_fit_are_kept_as_text_or_left_out(bench: Bench) -> None:
    text = '{"tokens": 123456789012345678901234567890, "n": %s, "x": 1e400, "flag": true, ' % (
        "1" * 5000
    )
    run = bench.run(f"open('metrics.json', 'w').write('''{text}\"d\": 1, \"d\": 2}}''')")
    trial = run.trials[0]
    assert trial["tokens"] == "123456789012345678901234567890"
    assert (trial["x"], trial["flag"], trial["d"]) == (None, True, 2)
    json.loads(run.run_json_path.read_text(), parse_constant=pytest.fail)


@pytest.mark.parametrize(("code", "acc"), [("pass", None), ("", 0.99)])
def test_081_metrics_that_lay_in_the_source_are_not_those_of_the_run(
    bench: Bench, code: str, acc: float | None
) -> None:
    (bench.source / "metrics.json").write_text('{"acc": 0.99}')
    write = 'open("metrics.json", "w").write(\'{"acc": 0.99}\')'
    run = bench.run(code or write)
    assert run.state is RunState.SUCCEEDED
    assert run.trials[0].get("acc") == acc


def test_083_the_latest_attempt_speaks_for_the_run_and_the_earlier_keeps_its_own_words(
    bench: Bench,
) -> None:
    """A resumed attempt repeats steps; each value is the latest, and nothing earlier is lost."""
    run = bench.run(
        """
        import os
        from flashruntime.attempt import Attempt
        attempt = Attempt.from_env()
        found = attempt.resume()
        for step in range(found.step if found else 0, 201):
            attempt.log({"step": step, "loss": 2 if found else 1})
            attempt.report(step)
            if step == 120 and not found: attempt.save(step, {"state": b"s"})
            if step == 150 and not found: os.kill(os.getpid(), 9)
        """,
        env={"PYTHONPATH": str(ROOT)},
        options={"max_restarts": 1},
    )
    assert (run.trials[0]["step"], run.trials[0]["loss"]) == (200, 2)
    assert [(each.step, each.resumed_from) for each in run.attempts] == [(150, None), (200, 120)]
    earlier = json.loads((run.output_dir / "local" / "task-000" / "metrics.json").read_text())
    assert earlier == {"step": 150, "loss": 1}


def test_087_a_placeholder_in_json_is_replaced_and_every_other_brace_is_literal(
    bench: Bench,
) -> None:
    run = bench.run("", "echo", '{"lr": {lr}, "a": "{lr.__class__}"} {0} { ${HOME}',
                    task_params=[{"lr": 0.1}])  # fmt: skip
    assert run.logs() == '{"lr": 0.1, "a": "{lr.__class__}"} {0} { ${HOME}\n'


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        pytest.param(["pyhton3", "train.py"], "executable not found: pyhton3", id="091"),
        pytest.param(["/nonexistent/x"], "not found", id="091-path"),
        pytest.param(["sh", "-c", "/nonexistent/x"], "127", id="091-shell"),
        pytest.param(["./run.sh"], "Windows line endings", id="093"),
        pytest.param(["echo", "x" * 200_000], "too long", id="095"),
    ],
)
def test_a_command_that_cannot_start_is_tried_once_and_says_why(
    bench: Bench, argv: list[str], words: str
) -> None:
    (bench.source / "run.sh").write_bytes(b"#!/usr/bin/env python3\r\nprint(1)\r\n")
    (bench.source / "run.sh").chmod(0o755)
    run = bench.run("", *argv, options={"max_restarts": 3})
    assert words in failed_once(run)
    assert run.attempts[0].failure_class is USER


def test_097_a_file_that_shadows_a_module_hurts_the_script_alone(bench: Bench) -> None:
    bench.script("x = 1", "json.py")
    run = bench.run("import json; print(json.dumps({}))", options={"max_restarts": 3})
    assert failed_once(run) == "AttributeError: module 'json' has no attribute 'dumps'"


def test_097_a_file_that_shadows_the_helper_is_named(bench: Bench) -> None:
    bench.script("x = 1", "flashruntime.py")
    run = bench.run("import flashruntime.torch", env={"PYTHONPATH": str(ROOT)})
    assert "'flashruntime' is not a package" in failed_once(run)
    assert run.attempts[0].failure_class is USER


def test_099_an_output_that_leads_out_of_the_workspace_is_not_followed(bench: Bench) -> None:
    code = "import os; os.symlink('/etc/hostname', 'secret')"
    run = bench.run(code, outputs=["secret"])
    assert "symbolic link" in failed_once(run)
    assert run.artifacts == []


def test_099_blanks_and_other_letters_in_a_name_are_fine(bench: Bench) -> None:
    code = "import os; os.mkdir('model dir'); open('model dir/best é.bin', 'w').write('x')"
    run = bench.run(code, outputs=["model dir/best é.bin"])
    assert [artifact.path for artifact in run.artifacts] == ["model dir/best é.bin"]


def test_101_every_attempt_works_in_a_fresh_copy_of_the_source(bench: Bench) -> None:
    (bench.source / "cfg").mkdir()
    (bench.source / "cfg" / "a.yaml").write_text("a: 1")
    run = bench.run(
        """
        import os, pathlib
        assert open("cfg/a.yaml").read() == "a: 1" and not os.path.exists("stale")
        open("stale", "w"), open("cfg/a.yaml", "w").write("spoilt")
        if os.environ["FLASHML_RESTART_COUNT"] == "0": os.kill(os.getpid(), 9)
        open("model.bin", "w").write(os.getcwd())
        """,
        outputs=["model.bin"],
        options={"max_restarts": 1},
    )
    assert run.state is RunState.SUCCEEDED
    [artifact] = run.artifacts
    assert (run.output_dir / artifact.file).read_text() == str(
        run.output_dir / "local/task-000-r1/work"
    )
    assert (bench.source / "cfg" / "a.yaml").read_text() == "a: 1"
