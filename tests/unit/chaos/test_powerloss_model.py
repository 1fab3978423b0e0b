"""What a power loss may leave: the model of the disk, the states, and the reading of a trace."""

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.powerloss.bundle import chosen
from chaos.powerloss.disk import Disk, bytes_of
from chaos.powerloss.operations import Kind, Operation, Tree
from chaos.powerloss.states import crash_states, losses
from chaos.powerloss.trace import PROMISE, NotModelled, operations
from chaos.testing.images import NEWER, OLDER, PART, ROOT, FakeImages, save, traced

BASE: Tree = {"d": None, "e": None, "d/old": b"o" * 3000}
PATHS = ("d/old", "d/a", "d/b", "e/a", "e/b")


def after(*done: Operation, base: Tree = BASE) -> Disk:
    disk = Disk(base)
    for operation in done:
        disk.perform(operation)
    return disk


def left(disk: Disk) -> list[Tree]:
    return [bytes_of(disk.crash(loss.kept)) for loss in losses(disk.pending)]


def written(path: str, data: bytes, offset: int = 0) -> Operation:
    return Operation(Kind.WRITE, path, offset=offset, data=data)


CREATE = Operation(Kind.CREATE, "d/a")
WRITE = written("d/a", b"n" * 5000)
FSYNC = Operation(Kind.FSYNC, "d/a")
FSYNC_DIRECTORY = Operation(Kind.FSYNC, "d")
RENAME = Operation(Kind.RENAME, "d/a", to="e/a")


def test_an_fsync_of_a_file_does_not_make_its_name_durable() -> None:
    states = left(after(CREATE, WRITE, FSYNC))
    assert BASE in states
    assert {**BASE, "d/a": WRITE.data} in states
    assert len([state for state in states if state.get("d/a") not in {None, WRITE.data}]) == 0


def test_an_fsync_of_a_directory_does_not_make_the_bytes_of_its_files_durable() -> None:
    states = left(after(CREATE, WRITE, FSYNC_DIRECTORY))
    assert all("d/a" in state for state in states)
    assert {**BASE, "d/a": b""} in states
    assert {**BASE, "d/a": bytes(5000)} in states


def test_what_was_fsynced_with_its_name_leaves_one_state() -> None:
    disk = after(CREATE, WRITE, FSYNC, FSYNC_DIRECTORY)
    assert disk.pending == []
    assert left(disk) == [{**BASE, "d/a": WRITE.data}]


def test_a_torn_write_leaves_a_prefix_or_what_was_there_before_in_sectors_and_blocks() -> None:
    seen = {state["d/old"] for state in left(after(written("d/old", b"n" * 3000)))}
    assert {b"o" * 3000, b"n" * 3000, b"n" * 1024 + b"o" * 1976} <= seen
    assert b"o" * 512 + b"n" * 2488 in seen
    assert b"n" * 2560 + b"o" * 440 in seen


def test_a_write_may_be_lost_while_a_later_one_to_the_same_file_is_there() -> None:
    disk = after(written("d/old", b"1" * 600), written("d/old", b"2" * 600, offset=600))
    assert b"o" * 600 + b"2" * 600 + b"o" * 1800 in {state["d/old"] for state in left(disk)}


def test_a_rename_within_a_directory_is_one_step_and_between_two_of_them_two() -> None:
    settled = (CREATE, WRITE, FSYNC, FSYNC_DIRECTORY)
    within = left(after(*settled, Operation(Kind.RENAME, "d/a", to="d/b")))
    assert {("d/a" in state, "d/b" in state) for state in within} == {(True, False), (False, True)}
    between = left(after(*settled, RENAME))
    seen = {("d/a" in state, "e/a" in state) for state in between}
    assert seen == {(True, False), (False, True), (True, True), (False, False)}


def test_what_lies_below_a_lost_name_is_lost_with_it() -> None:
    make = Operation(Kind.MKDIR, "d/new")
    inside = Operation(Kind.CREATE, "d/new/f")
    disk = after(make, inside, Operation(Kind.FSYNC, "d/new/f"), Operation(Kind.FSYNC, "d/new"))
    assert BASE in left(disk)


@st.composite
def histories(draw: st.DrawFn) -> list[Operation]:
    """Operations that a process could perform on BASE, in order."""
    disk, done = Disk(BASE), []
    for _ in range(draw(st.integers(1, 12))):
        path, other = draw(st.sampled_from(PATHS)), draw(st.sampled_from(PATHS))
        if not disk.exists(path):
            operation = Operation(Kind.CREATE, path)
        else:
            possible: list[Operation] = [
                written(path, draw(st.binary(min_size=1, max_size=40)), draw(st.integers(0, 40))),
                Operation(Kind.TRUNCATE, path, size_bytes=draw(st.integers(0, 30))),
                Operation(Kind.FSYNC, path),
                Operation(Kind.FSYNC, path[0]),
                Operation(Kind.RENAME, path, to=other),
                Operation(Kind.UNLINK, path),
                Operation(Kind.SYNC, ""),
            ]
            operation = draw(st.sampled_from(possible))
        disk.perform(operation)
        done.append(operation)
    return done


@settings(max_examples=25, deadline=None)
@given(histories())
def test_all_that_is_synced_survives_in_every_state_and_only_then_there_is_one(
    done: list[Operation],
) -> None:
    disk = after(*done)
    live = bytes_of(disk.crash(disk.pending))
    states = left(disk)
    assert live in states
    disk.perform(Operation(Kind.SYNC, ""))
    assert left(disk) == [live]


@settings(max_examples=25, deadline=None)
@given(histories(), st.binary(min_size=1, max_size=50))
def test_a_synced_file_that_nobody_touches_again_is_whole_in_every_later_state(
    done: list[Operation], data: bytes
) -> None:
    before: Tree = {**BASE, "kept": None}
    first = [Operation(Kind.CREATE, "kept/file"), written("kept/file", data)]
    first += [Operation(Kind.FSYNC, "kept/file"), Operation(Kind.FSYNC, "kept")]
    first += [Operation(Kind.ANSWERED, "kept")]
    states = list(crash_states(before, [*first, *done]))
    promised = [state for state in states if state.answered]
    assert promised
    assert all(bytes_of(state.image)["kept/file"] == data for state in promised)


@settings(max_examples=25, deadline=None)
@given(histories())
def test_no_two_states_are_the_same_volume_under_the_same_promises(done: list[Operation]) -> None:
    states = list(crash_states(BASE, done))
    assert len({(state.digest, state.answered) for state in states}) == len(states)
    assert all(state.lost for state in states if state.how != "nothing lost")


@settings(max_examples=25, deadline=None)
@given(histories())
def test_the_trace_of_what_was_done_reads_as_what_was_done(done: list[Operation]) -> None:
    assert operations("".join(map(traced, done)), ROOT, BASE) == done


def test_a_choice_is_seeded_and_takes_from_every_prefix_before_it_takes_a_second_time() -> None:
    states = list(crash_states({".staging": None, OLDER: None}, save()))
    few = chosen(states, 6, 1)
    assert few == chosen(states, 6, 1)
    assert few != chosen(states, 6, 2)
    assert len({state.after for state in few}) == 6
    firsts = {chosen(states, 1, seed)[0].after for seed in range(40)}
    assert len(firsts) > 4


Line = Callable[[str], str]


@pytest.fixture
def line() -> Line:
    """Return a maker of trace lines in which {x} is a path on the volume, as strace spells it."""

    def spell(path: str) -> str:
        return "".join(f"\\x{byte:02x}" for byte in f"{ROOT}/{path}".encode())

    def make(text: str) -> str:
        return f"7 {text.format(a=spell('d/a'), b=spell('d/b'), d=spell('d'))}\n"

    return make


def read(lines: Sequence[str]) -> list[str]:
    return [str(operation) for operation in operations("".join(lines), ROOT, BASE)]


def test_a_call_that_other_threads_interrupt_counts_where_it_ends(line: Line) -> None:
    lines = [
        line("openat(4<{d}>, <unfinished ...>"),
        line('mkdir("{b}", 0777) = 0').replace("7", "8", 1),
        line('<... openat resumed>"\\x61", O_WRONLY|O_CREAT|O_EXCL, 0600) = 5<{a}>'),
    ]
    assert read(lines) == ["mkdir d/b", "create d/a"]


def test_plain_writes_follow_one_another_and_an_append_goes_to_the_end(line: Line) -> None:
    lines = [
        line('openat(4<{d}>, "\\x61", O_WRONLY|O_CREAT|O_TRUNC, 0600) = 5<{a}>'),
        line('write(5<{a}>, "\\x41\\x42", 2) = 2'),
        line('write(5<{a}>, "\\x43", 1) = 1'),
        line("close(5<{a}>) = 0"),
        line('openat(4<{d}>, "\\x61", O_WRONLY|O_APPEND) = 5<{a}>'),
        line('write(5<{a}>, "\\x44", 1) = 1'),
    ]
    assert read(lines)[1:] == ["write d/a 0+2", "write d/a 2+1", "write d/a None+1"]


def test_a_promise_is_said_outside_the_volume_and_a_write_on_it_is_a_write(line: Line) -> None:
    said = "".join(f"\\x{byte:02x}" for byte in PROMISE + b"x")
    lines = [
        line(f'write(1<pipe:[1]>, "{said}", 17) = 17'),
        line('openat(4<{d}>, "\\x61", O_WRONLY|O_CREAT|O_TRUNC, 0600) = 5<{a}>'),
        line('write(5<{a}>, "' + said + '", 17) = 17'),
    ]
    assert read(lines) == ["answered x", "create d/a", "write d/a 0+17"]


def test_failed_calls_and_files_without_a_name_leave_no_operation(line: Line) -> None:
    lines = [
        line('unlink("{a}") = -1 ENOENT (No such file or directory)'),
        line('openat(4<{d}>, "\\x61", O_RDWR|O_EXCL|O_TMPFILE, 0600) = 5<{a}>(deleted)'),
        line('write(5<{a}>(deleted), "\\x41", 1) = 1'),
        line('write(9</elsewhere>, "\\x41", 1) = 1'),
    ]
    assert read(lines) == []


@pytest.mark.parametrize(
    "text",
    [
        'symlink("{b}", "{a}") = 0',
        'mkdir("\\x64", 0777) = 0',
        "fallocate(5<{d}>, 0, 0, 4096) = 0",
        'pwrite64(5<{d}>, "\\x41"..., 2, 0) = 2',
        "mmap(NULL, 4096, PROT_READ|PROT_WRITE, MAP_SHARED, 5<{d}>, 0) = 0x7f0000000000",
    ],
)
def test_what_is_not_modelled_is_refused(line: Line, text: str) -> None:
    with pytest.raises(NotModelled):
        read([line(text)])


def test_the_twin_of_a_save_ends_with_the_step_in_its_place() -> None:
    assert FakeImages().record("checkpoint").after[f"{NEWER}/part"] == PART
