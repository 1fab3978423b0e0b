"""What is read from runs of chaos experiments, and what is said of them."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks import composed, logs
from benchmarks.composed import Reading
from benchmarks.scenario import Bench
from benchmarks.schema import Unavailable
from chaos.history import History, Record
from chaos.model import CannotRun, JsonMap, Verdict


def record(seq: int, kind: str, data: JsonMap) -> Record:
    return Record(seq, seq, "boot", "2026-01-01T00:00:00+00:00", "controller", kind, data)


def accepted(seq: int) -> Record:
    event = {"id": seq, "type": "TASK_COMMIT_ACCEPTED", "mono_ns": seq, "boot_id": "boot"}
    return record(seq, "event", event)


def reading(verdict: Verdict = Verdict.VALID, *told: str, **figures: Any) -> Reading:
    read = logs.Logs()
    text = '{"ts": "2026-01-01T00:00:00+00:00", "seq": %d, "event": "attempt_accepted"}'
    logs.add(read, "worker-1", [text % 1, text % 4])
    history = History([record(0, "plan", {"seed": 9}), *(accepted(number) for number in (1, 2, 3))])
    return Reading(Path(), verdict, told, history, figures, read, 1.0)


def test_what_could_not_be_counted_is_left_out() -> None:
    runs = [reading(mttd_s=[2.0, None, 3.0], goodput=0.5), reading(mttd_s=[], goodput=None)]
    assert composed.together(runs, "mttd_s") == [2.0, 3.0]
    assert composed.singles(runs, "goodput") == [0.5]
    assert composed.singles(runs, "penalty") == []


def test_a_violated_run_is_a_finding_and_keeps_its_numbers() -> None:
    told = composed.notes(
        [reading(), reading(Verdict.VIOLATED, "FINDING: no_task_lost: one is RUNNING")]
    )
    assert "1 of 2 runs judged valid" in told[0]
    assert "4 numbered lines of 2 processes, 4 lost" in told[1]
    assert told[2] == "results accepted: 6 by the coordinator's API, 4 by the workers' logs"
    assert told[3] == "FINDING: no_task_lost: one is RUNNING"


def test_a_machine_that_cannot_run_it_gives_the_reason(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cannot(*_: object) -> None:
        raise CannotRun("there is no engine; `make chaos` starts one")

    monkeypatch.setattr("benchmarks.composed.registry.machine", cannot)
    here: Bench = bench()
    with pytest.raises(Unavailable, match="there is no engine"):
        composed.run(here, "crash_storm", seed=1)
    with pytest.raises(Unavailable, match="there is no engine"), composed.stack(here):
        pass
