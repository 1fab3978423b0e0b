"""What a job's own code can do without any framework."""

import json
import math
import os
import signal
from pathlib import Path

import pytest

from flashruntime.attempt import Attempt, Settings
from flashruntime.errors import ConfigError, InvalidInput, Superseded


@pytest.fixture
def attempt(tmp_path):
    """Build the attempt that a launcher's environment describes."""

    def build(number=0, **more):
        private = tmp_path / f"attempt-{number}"
        private.mkdir(exist_ok=True)
        env = {
            "FLASHML_CKPT_DIR": str(tmp_path / "ckpt"),
            "FLASHML_OUTPUT_DIR": str(private),
            "FLASHML_STEP_FILE": str(private / "step.json"),
            "FLASHML_JOB_ID": "job-0123456789ab",
            "FLASHML_ATTEMPT_ID": f"lease-{number}",
            "FLASHML_RESTART_COUNT": str(number),
            **more,
        }
        return Attempt(Settings.from_env(env))

    return build


def state(attempt):
    return json.loads(attempt.settings.step_file.read_text())


def metrics(attempt):
    text = (attempt.settings.output_dir / "metrics.json").read_text()
    return json.loads(text, parse_constant=pytest.fail)


def events(attempt):
    path = attempt.settings.step_file.with_name("events.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_payload_without_a_framework_resumes_where_its_predecessor_saved(attempt):
    first = attempt()
    assert first.resume() is None
    first.save(40, {"counter": b"40"}, metadata={"note": "half"})
    second = attempt(1)
    found = second.resume()
    assert (found.step, dict(found.parts)) == (40, {"counter": b"40"})
    assert found.manifest.metadata == {"note": "half"}
    assert found.manifest.job_id == "job-0123456789ab"


def test_the_step_file_follows_the_attempt(attempt):
    first = attempt()
    first.report(3)
    assert state(first) == {"step": 3, "resumed_from": None, "checkpoint_step": None}
    first.save(40, {"counter": b"40"})
    assert state(first) == {"step": 40, "resumed_from": None, "checkpoint_step": 40}
    second = attempt(1)
    second.resume()
    assert state(second) == {"step": 40, "resumed_from": 40, "checkpoint_step": None}


def test_what_was_rejected_is_printed_and_kept_for_the_worker(attempt, tmp_path, capsys):
    first = attempt()
    first.save(1, {"counter": b"1"})
    first.save(2, {"counter": b"2"})
    (tmp_path / "ckpt" / "step-000002" / "counter").write_bytes(b"x")
    second = attempt(1)
    assert second.resume().step == 1
    assert [(r.step, r.part) for r in second.rejections] == [(2, "counter")]
    rejected, resumed = events(second)
    assert (rejected["event"], rejected["step"], rejected["kind"]) == (
        "checkpoint_rejected", 2, "corrupt",
    )  # fmt: skip
    assert (resumed["event"], resumed["step"]) == ("resumed", 1)
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert printed[-2:] == [rejected, resumed]
    assert [line["seq"] for line in printed[-2:]] == [1, 2]


def test_a_superseded_attempt_is_told_so(attempt):
    first = attempt()
    first.resume()
    attempt(1).resume()
    with pytest.raises(Superseded):
        first.save(1, {"counter": b"1"})
    with pytest.raises(Superseded):
        attempt(0, FLASHML_ATTEMPT_ID="lease-late").resume()


def test_keep_comes_from_the_environment(attempt, tmp_path):
    chatty = attempt(FLASHML_CKPT_KEEP="1")
    for step in (1, 2):
        chatty.save(step, {"counter": b"1"})
    assert [path.name for path in (tmp_path / "ckpt").glob("step-*")] == ["step-000002"]


def test_metrics_are_merged_and_strict(attempt):
    logging = attempt()
    logging.log({"loss": math.nan, "acc": 0.5, "n": 10**30})
    logging.log({"acc": 0.75, "bad": {1, 2}, "deep": {"lr": math.inf}})
    assert metrics(logging) == {"loss": None, "acc": 0.75, "n": str(10**30), "deep": {"lr": None}}
    (left_out,) = [event for event in events(logging) if event["event"] == "metric_left_out"]
    assert left_out["key"] == "bad"


@pytest.mark.parametrize("nonsense", [None, 3, "text", [1], object()])
def test_logging_never_raises(attempt, nonsense):
    logging = attempt()
    logging.log(nonsense)
    assert events(logging)[-1]["event"] == "metrics_not_written"


def test_logging_where_nothing_can_be_written_never_raises(attempt, tmp_path, capsys):
    logging = attempt(FLASHML_OUTPUT_DIR=str(tmp_path / "missing"))
    logging.log({"loss": 1.0})
    assert "metrics_not_written" in capsys.readouterr().out


def test_reporting_where_nothing_can_be_written_never_raises(attempt, tmp_path):
    attempt(FLASHML_STEP_FILE=str(tmp_path / "missing" / "step.json")).report(1)


def test_sigterm_is_a_notice_and_an_earlier_handler_still_runs(attempt):
    calls = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: calls.append(number))
    try:
        noticed = attempt()
        noticed.install_notice()
        assert not noticed.notice.is_set()
        os.kill(os.getpid(), signal.SIGTERM)
        assert noticed.notice.wait(5)
        assert calls == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_without_a_launcher_the_working_directory_is_used_and_each_run_takes_over(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("FLASHML_")]:
        monkeypatch.delenv(name)
    first = Attempt.from_env()
    first.save(1, {"counter": b"1"})
    first.log({"acc": 1})
    second = Attempt.from_env()
    assert second.resume().step == 1
    assert second.settings.claim.attempt_id != first.settings.claim.attempt_id
    assert Path("metrics.json").exists()
    assert Path("flashruntime-ckpt/step-000001").is_dir()


@pytest.mark.parametrize(
    ("name", "value"),
    [("FLASHML_RESTART_COUNT", "-1"), ("FLASHML_RESTART_COUNT", "x"), ("FLASHML_CKPT_KEEP", "0"),
     ("FLASHML_ATTEMPT_ID", "../escape"), ("FLASHML_JOB_ID", "j" * 300)],
)  # fmt: skip
def test_a_wrong_variable_is_a_config_error_that_names_it(name, value):
    with pytest.raises(ConfigError, match=name):
        Settings.from_env({name: value})


def test_a_senseless_step_is_refused(attempt):
    with pytest.raises(InvalidInput, match="step must be an integer"):
        attempt().save(-1, {"counter": b"1"})
