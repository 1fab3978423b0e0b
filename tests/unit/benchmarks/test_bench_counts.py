"""What scenarios count: lines, overheads, and the commands that they compare with."""

import os
import select
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from benchmarks.comparators import bare, frameworks
from benchmarks.faults import CrashyTrainer
from benchmarks.scenarios.adoption_cost import FORMS, SNIPPETS, changed_lines
from benchmarks.scenarios.fanout_throughput import Leg
from benchmarks.scenarios.hpo_sweep import SWEEPS, TRIALS, setup_lines
from benchmarks.schema import BenchError, Unavailable


@pytest.mark.parametrize("script", sorted(SNIPPETS.glob("*.py")), ids=lambda path: path.name)
def test_every_snippet_cites_its_source_and_compiles(script: Path) -> None:
    text = script.read_text(encoding="utf-8")
    compile(text, script.name, "exec")
    first = text.splitlines()[0]
    assert first.startswith("# ")
    assert "https://" in text or "README.md of this project" in text or "by hand" in first


def test_adopting_is_counted_by_what_changed() -> None:
    assert changed_lines(SNIPPETS / "train_vanilla.py") == 0
    assert changed_lines(SNIPPETS / "train_flash.py") == 5
    for script in FORMS.values():
        assert changed_lines(SNIPPETS / script) > changed_lines(SNIPPETS / "train_flash.py")


def test_a_trial_inside_a_sweep_script_is_no_setup() -> None:
    assert setup_lines(SNIPPETS / "hpo_ray.py") < 12
    assert setup_lines(SNIPPETS / "hpo_flash.py") < setup_lines(SNIPPETS / "hpo_loop.py")


def test_every_sweep_has_eight_trials() -> None:
    for script in SWEEPS.values():
        assert (SNIPPETS / script).read_text(encoding="utf-8").count(TRIALS) == 1


@pytest.mark.parametrize(
    ("rate", "slots", "share"),
    [(120.0, 1, 0.0), (60.0, 1, 0.5), (240.0, 2, 0.0), (110.0, 1, 1 / 12)],
)
def test_overhead_is_what_is_not_intended_sleep(rate: float, slots: int, share: float) -> None:
    assert Leg(16, 0.5).overhead(rate, slots) == pytest.approx(share)


def test_a_command_that_fails_is_told_with_its_last_words(tmp_path: Path) -> None:
    code = "print('caf\\xe9'); raise SystemExit(3)"
    with pytest.raises(BenchError, match=r"ended with 3: caf"):
        bare.run([sys.executable, "-c", code], tmp_path)
    assert "caf" in bare.run([sys.executable, "-c", code], tmp_path, ok=False)


def test_a_command_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time;"
        "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']);"
        "open('pid', 'w').write(str(p.pid)); time.sleep(60)"
    )
    with pytest.raises(BenchError, match="did not end within 1 s"):
        bare.run([sys.executable, "-c", code], tmp_path, timeout_s=1.0)
    with suppress(ProcessLookupError):
        orphan = os.pidfd_open(int((tmp_path / "pid").read_text()))
        assert select.select([orphan], [], [], 10.0)[0], "its child lives on"
        os.close(orphan)


@pytest.mark.parametrize("code", ["print('no json')", "print('[1]')", "pass"])
def test_a_payload_without_a_result_is_named(tmp_path: Path, code: str) -> None:
    script = tmp_path / "pay.py"
    script.write_text(code)
    with pytest.raises(BenchError, match=r"pay\.py printed no result"):
        bare.result(script, cwd=tmp_path)


def test_the_result_of_a_payload_stands_among_events(tmp_path: Path) -> None:
    script = tmp_path / "pay.py"
    script.write_text(
        "import sys; print('x'); print('{\"a\": [%s]}\\n{\"event\": 1}' % sys.argv[1])"
    )
    assert bare.result(script, 1.5, cwd=tmp_path) == {"a": [1.5]}


def test_a_framework_that_is_not_there_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(frameworks.VARIABLE, "/nowhere/python")
    frameworks.version.cache_clear()
    with pytest.raises(Unavailable, match="`make bench-comparators`"):
        frameworks.python("ray")
    frameworks.version.cache_clear()


def test_both_arms_crash_at_the_same_step() -> None:
    trainer = CrashyTrainer("tiny", steps=9, every=2, crash_at=5)
    assert trainer.argv("flash")[2:] == ["flash", "tiny", "9", "2", "5"]
    assert trainer.argv("bare")[-1] == "5"
    assert trainer.argv("bare", crash=False)[-1] == "0"
