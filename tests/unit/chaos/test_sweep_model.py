"""A sweep: what is read from a trace, which boundaries are tried, what is judged and said."""

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

import chaos
from chaos.cli import main
from chaos.model import CannotRun, Landed, Verdict
from chaos.ports.syscalls import KILL
from chaos.sweep import boundaries, explore, judged, spread, violations
from chaos.syscalls_trace import Syscall, parse
from chaos.testing.machine import FakeMachine
from chaos.testing.syscalls import CALLS, NEWER, FakeSyscalls

SCHEMA = Path(chaos.__file__).parent / "verdict.schema.json"
TRACE = r"""
7 1700.000001 openat(3</v/s>, "part", O_WRONLY|O_CREAT, 0644) = 4</v/s/part>
7 1700.000002 write(4</v/s/part>, "a\"b = 1"..., 98304 <unfinished ...>
8 1700.000003 unlink("/v/none") = -1 ENOENT (No such file or directory)
7 1700.000004 <... write resumed>) = 98304
8 1700.000005 fsync(5</v>) = -1 EIO (Input/output error) (INJECTED)
7 1700.000006 write(4</v/s/part>, ""..., 2) = 2
7 1700.000007 rename("/v/s", "/v/d" <unfinished ...>
7 1700.000008 +++ killed by SIGKILL +++
"""


def said(_text: str) -> None:
    pass


def test_a_trace_is_read_with_paths_results_and_the_count_of_each_thread() -> None:
    found = [(c.thread, c.name, c.paths, c.nth, c.result, c.errno) for c in parse(TRACE)]
    assert found == [
        (7, "openat", ("/v/s/part",), 1, 4, None),
        (7, "write", ("/v/s/part",), 1, 98304, None),
        (8, "unlink", ("/v/none",), 1, -1, "ENOENT"),
        (8, "fsync", ("/v",), 1, -1, "EIO"),
        (7, "write", ("/v/s/part",), 2, 2, None),
        (7, "rename", ("/v/s", "/v/d"), 1, None, None),
    ]
    assert [c.name for c in parse(TRACE) if c.injected] == ["fsync"]


@given(st.lists(st.tuples(st.integers(1, 3), st.sampled_from(["fsync", "write"])), max_size=30))
def test_calls_cut_in_two_by_other_threads_are_read_as_if_they_were_whole(
    begun: list[tuple[int, str]],
) -> None:
    whole: list[str] = []
    cut: list[str] = []
    ends: list[str] = []
    for index, (thread, name) in enumerate(begun):
        words = f"{thread} {index}.5 {name}(3</v/f{index}>"
        whole.append(f"{words}) = {index}")
        cut += [e for e in ends if e.startswith(f"{thread} ")]
        ends = [e for e in ends if not e.startswith(f"{thread} ")]
        cut.append(f"{words} <unfinished ...>")
        ends.append(f"{thread} {index}.6 <... {name} resumed>) = {index}")
    assert parse("\n".join([*cut, *ends])) == parse("\n".join(whole))
    assert len(parse("\n".join(whole))) == len(begun)


@given(st.integers(1, 400), st.integers(2, 400))
def test_a_limit_is_spread_from_the_first_boundary_to_the_last(known: int, limit: int) -> None:
    chosen = spread(known, limit)
    assert len(chosen) == len(set(chosen)) == min(known, limit)
    assert (chosen[0], chosen[-1]) == (1, known)


@pytest.mark.parametrize("how", [KILL, "EIO"])
def test_an_honest_save_is_valid_at_every_boundary(how: str) -> None:
    found = explore(FakeSyscalls(), "checkpoint", how, None, said)
    assert (found.verdict, found.known) == (Verdict.VALID, len(CALLS))
    assert [point.k for point in found.points] == [1, 2, 3, 4, 5]
    assert all(point.landed is Landed.LANDED for point in found.points)


def test_a_save_that_answers_too_early_is_caught_at_the_boundary_between() -> None:
    found = explore(FakeSyscalls(synced=False), "checkpoint", KILL, None, said)
    assert found.verdict is Verdict.VIOLATED
    assert [(p.k, p.violations) for p in found.points if p.violations] == [
        (4, (f"{NEWER} had been answered and is absent",))
    ]


def test_where_nothing_was_hit_the_verdict_is_unknown() -> None:
    found = explore(FakeSyscalls(misses=True), "checkpoint", KILL, 2, said)
    assert found.verdict is Verdict.UNKNOWN
    assert {point.landed for point in found.points} == {Landed.MISSED}


def test_a_kill_at_another_call_than_the_one_meant_is_missed() -> None:
    saved = FakeSyscalls().save("checkpoint", CALLS[1])
    assert judged(3, CALLS[2], KILL, saved).landed is Landed.MISSED
    assert judged(2, CALLS[1], KILL, replace(saved, exit_code=1)).landed is Landed.MISSED


def test_names_that_differ_from_run_to_run_are_the_same_place() -> None:
    one = Syscall(1, 0.0, "rename", "", ("/v/.tmp/0a1b2c3d4e5f", "/v/key"), 1)
    assert one.place == replace(one, paths=("/v/.tmp/99aabbccddee", "/v/key")).place
    assert one.place != replace(one, paths=("/v/.tmp/99aabbccddee", "/v/other")).place


def test_what_only_reads_or_lies_elsewhere_is_no_boundary() -> None:
    saved = FakeSyscalls().save("checkpoint")
    look = Syscall(1, 0.1, "openat", "O_RDONLY", (f"{saved.root}/x",), 1, 3)
    near = Syscall(1, 0.2, "mkdir", "", (f"{saved.root}2/x",), 1, 0)
    assert boundaries(replace(saved, calls=(look, near, *saved.calls))) == CALLS


def test_torn_and_unusable_are_violations_whatever_was_answered() -> None:
    saved = replace(FakeSyscalls().save("checkpoint"), usable=False, detail="no", answered=())
    assert violations(replace(saved, items={NEWER: "torn"})) == (
        "the volume cannot be used again: no",
        f"{NEWER} is torn",
    )


def test_a_save_that_fails_undisturbed_is_not_swept() -> None:
    class Silent(FakeSyscalls):
        def save(self, what: str, at: Syscall | None = None, how: str = KILL):  # type: ignore[no-untyped-def]
            return replace(super().save(what, at, how), answered=())

    with pytest.raises(CannotRun, match="silent"):
        explore(Silent(), "checkpoint", KILL, None, said)


@pytest.mark.parametrize(("planted", "code"), [([], 0), (["--planted", "no_fsync"], 1)])
def test_the_verb_keeps_what_it_saw_and_ends_by_the_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], planted: list[str], code: int
) -> None:
    words = ["sweep", "--what", "checkpoint", "--out", str(tmp_path), *planted]
    assert main(words, FakeMachine) == code
    assert "K = 5" in capsys.readouterr().out
    (folder,) = tmp_path.iterdir()
    verdict = json.loads((folder / "verdict.json").read_text())
    jsonschema.validate(verdict, json.loads(SCHEMA.read_bytes()))
    assert verdict["verdict"] == ("valid" if code == 0 else "violated")
    assert [fault["landed"] for fault in verdict["faults"]] == ["landed"] * 5
    points = json.loads((folder / "sweep.json").read_text())["sweeps"][0]["points"]
    assert [point["k"] for point in points] == [1, 2, 3, 4, 5]
