"""The plan of kills, the metrics that must be equal, and what cannot be asked."""

from pathlib import Path
from random import Random

import pytest

from flashruntime.cli import main
from flashruntime.errors import InvalidInput
from flashruntime.sdk.exactness import Request
from flashruntime.sdk.kills import Moment, Pace, choose_moments
from flashruntime.sdk.metrics import compare_metrics, is_volatile
from flashruntime.sdk.workload import CommandWorkload

PACE = Pace(duration_s=10.0, steps=200, step_s=0.04, startup_s=2.0)


def test_the_same_seed_gives_the_same_moments_and_another_gives_others() -> None:
    first, again, other = (choose_moments(20, PACE, Random(seed)) for seed in (1, 1, 2))
    assert first == again != other


def test_kills_by_step_come_in_order_and_some_fall_into_the_start_of_a_process() -> None:
    moments = choose_moments(200, PACE, Random(5))
    at = [moment.step for moment in moments if moment.step is not None]
    assert at == sorted(at)
    assert all(1 <= step < 200 for step in at)
    starts = [moment for moment in moments if moment.step is None]
    assert 0 < len(starts) < 60
    assert all(moment.delay_s < 2.0 for moment in starts)


def test_without_steps_kills_go_by_time() -> None:
    moments = choose_moments(50, Pace(duration_s=3.0), Random(0))
    assert all(moment.step is None and 0 <= moment.delay_s < 3.0 for moment in moments)
    assert choose_moments(1, Pace(3.0, steps=1), Random(0)) == [
        Moment(None, Random(0).random() * 3)
    ]


@pytest.mark.parametrize(
    "name",
    [
        "resumed_from", "executed_steps_this_attempt", "wall_s", "train_time", "samples_per_second",
        "elapsedMs", "epochDuration", "attempt", "eval/latency", "tokens-per-sec", "hostname",
    ],
)  # fmt: skip
def test_metrics_that_tell_of_time_machine_or_attempt_are_volatile(name: str) -> None:
    assert is_volatile(name)


@pytest.mark.parametrize("name", ["loss", "accuracy", "steps", "timely_f1", "sample_chain", "bleu"])
def test_other_metrics_must_be_equal(name: str) -> None:
    assert not is_volatile(name)


def test_only_what_is_neither_volatile_nor_named_is_compared() -> None:
    first = {"loss": 0.5, "time_s": 1.0, "note": "a", "gone": 1}
    second = {"loss": 0.25, "time_s": 2.0, "note": "b"}
    found = compare_metrics(first, second, {"note"})
    assert [each.what for each in found.differences] == ["metric.gone", "metric.loss"]
    assert (found.compared, found.ignored) == (["gone", "loss"], ["note", "time_s"])


@pytest.mark.parametrize("kills", [0, -1, 1001])
def test_the_number_of_kills_has_bounds(kills: int, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="kills"):
        Request(CommandWorkload("true"), kills, 0, tmp_path / "out")


def test_a_directory_with_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "old").touch()
    assert main(["verify-resume", "true", "--output-dir", str(tmp_path)]) == 2


@pytest.mark.parametrize(
    "words", [[], [""], ["true", "--kills", "0"], ["true", "--kills", "x"], ["true", "--env", "="]]
)
def test_bad_input_ends_with_2(words: list[str]) -> None:
    assert main(["verify-resume", *words]) == 2


def test_the_verb_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert "verify-resume" in capsys.readouterr().out
