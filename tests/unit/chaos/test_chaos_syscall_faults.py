"""Faults at system calls, on a machine in memory: what is injected, and what counts as landed."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chaos.controller import Controller, Run
from chaos.faults import io_error, kill_at_syscall, lost_write, slow_fsync
from chaos.history import History
from chaos.model import Action, Comeback, JobRequest, JsonMap, Trigger
from chaos.ports import Fault
from chaos.schedule import make_plan
from chaos.syscalls_trace import Syscall, parse
from chaos.testing import FakeMachine

JOBS = {"reference": JobRequest("reference", ("true",)), "main": JobRequest("main", ("true",))}
CALL = Syscall(7, 1.0, "fsync", "3</v/step/a>", ("/v/step/a",), 1, result=0)
KILLED = replace(CALL, result=None)
FAILED = replace(CALL, result=-1, errno="EIO", injected=True)
LOST = replace(CALL, name="write", result=lost_write.ALL, injected=True)
DELAYED = replace(CALL, delayed=True)
FAULTS: list[tuple[Fault, JsonMap, Syscall, str]] = [
    (kill_at_syscall.FAULT, {"call": "fsync", "nth": 3}, KILLED, "signal=KILL"),
    (io_error.FAULT, {"call": "fsync"}, FAILED, "error=EIO"),
    (lost_write.FAULT, {"call": "write"}, LOST, "retval=1073741824"),
    (slow_fsync.FAULT, {"delay_ms": 200}, DELAYED, "delay_exit=200000"),
]
EACH = pytest.mark.parametrize(
    ("fault", "params", "hit", "what"), FAULTS, ids=[fault.kind for fault, *_ in FAULTS]
)


@pytest.fixture
def run(tmp_path: Path, experiment: Any) -> Any:
    """Run a fault at the holder of main while its tracer sees these calls."""

    def carry_out(fault: Fault, params: JsonMap, *seen: Syscall) -> tuple[JsonMap, FakeMachine]:
        machine = FakeMachine()
        machine.tracers.seen = seen
        action = Action(
            "f", fault.kind, "holder of main", Trigger(step_at_least=5), 20.0,
            {"hold_ms": 1, **params}, Comeback.AT_ONCE,
        )  # fmt: skip
        plan = make_plan(experiment(action), 1, 3, JOBS, images={})
        this = Run("run-1", tmp_path, plan, JOBS, lambda: False, poll_s=0.001, steady_s=0.2)
        said: list[str] = []
        Controller(machine, {fault.kind: fault}, this, said.append).carry_out()
        (receipt,) = History.load(tmp_path / "history.jsonl").of("fault_receipt")
        return receipt, machine

    return carry_out


@EACH
def test_it_lands_where_the_trace_shows_it(
    run: Any, fault: Fault, params: JsonMap, hit: Syscall, what: str
) -> None:
    receipt, machine = run(fault, params, CALL, hit)
    assert receipt["landed"] == "landed"
    assert receipt["evidence"]["hits"] == 1
    assert what in str(receipt["evidence"]["inject"])
    assert "detach_tracer" in {undo.action for undo in machine.undone}


@EACH
def test_it_misses_where_every_call_was_as_usual(
    run: Any, fault: Fault, params: JsonMap, hit: Syscall, what: str
) -> None:
    del what
    elsewhere = replace(hit, paths=("/other/a",))
    receipt, _ = run(fault, {**params, "below": "/v/"}, CALL, elsewhere)
    assert receipt["landed"] == "missed"


def test_a_delayed_call_is_told_from_an_injected_and_from_an_ordinary_one() -> None:
    trace = (
        "7 1.0 fsync(3</v/a>) = 0 (DELAYED)\n"
        "7 2.0 fsync(3</v/a>) = -1 EIO (Input/output error) (INJECTED)\n"
        "7 3.0 fsync(3</v/a>) = 0\n"
    )
    assert [(c.delayed, c.injected) for c in parse(trace)] == [
        (True, False),
        (False, True),
        (False, False),
    ]
