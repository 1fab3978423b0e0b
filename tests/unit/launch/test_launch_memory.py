"""The counter of kills for memory, on planted files of every layout that hosts have."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashruntime.launch.memory import oom_kills, risen

V1 = "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"
V2 = "low 0\nhigh 0\nmax 12\noom 4\noom_kill 2\noom_group_kill 0\n"


def planted(root: Path, groups: str, mounts: list[tuple[str, str, str, str]]) -> Path:
    """Make a /proc/self below `root`; mounts are (root, place, type, options of the superblock)."""
    proc = root / "proc"
    proc.mkdir()
    (proc / "cgroup").write_text(groups)
    lines = [
        f"{30 + i} 24 0:{i} {of} {root / place} ro,nosuid shared:{i} - {kind} {kind} {options}\n"
        for i, (of, place, kind, options) in enumerate(mounts)
    ]
    (proc / "mountinfo").write_text("".join(lines))
    return proc


def counter(root: Path, path: str, text: str) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_version_1_on_a_host(tmp_path: Path) -> None:
    groups = "8:pids:/\n4:memory:/jobs/a:b\n0::/\n"
    mounts = [("/", "pids", "cgroup", "rw,pids"), ("/", "memory", "cgroup", "rw,memory")]
    proc = planted(tmp_path, groups, [*mounts, ("/", "unified", "cgroup2", "rw")])
    counter(tmp_path, "memory/jobs/a:b/memory.oom_control", V1)
    counter(tmp_path, "memory/memory.oom_control", "oom_kill 99\n")
    assert oom_kills(proc) == 3


def test_version_1_in_a_container_that_sees_only_its_own_group(tmp_path: Path) -> None:
    proc = planted(
        tmp_path, "4:cpu,memory:/docker/abc\n", [("/docker/abc", "m", "cgroup", "rw,cpu,memory")]
    )
    counter(tmp_path, "m/memory.oom_control", V1)
    assert oom_kills(proc) == 3


@pytest.mark.parametrize(
    ("group", "place"), [("/", ""), ("/work.slice/x.scope", "work.slice/x.scope/")]
)
def test_version_2(tmp_path: Path, group: str, place: str) -> None:
    proc = planted(tmp_path, f"0::{group}\n", [("/", "cg", "cgroup2", "rw,nsdelegate")])
    counter(tmp_path, f"cg/{place}memory.events", V2)
    assert oom_kills(proc) == 2


@pytest.mark.parametrize("groups", ["", "0::/\n", "4:memory:/\n", "nonsense\n:::\n4:memory\n"])
def test_a_host_that_does_not_show_it_gives_none(tmp_path: Path, groups: str) -> None:
    proc = planted(tmp_path, groups, [("/", "cg", "cgroup2", "rw"), ("/", "m", "cgroup", "memory")])
    counter(tmp_path, "m/other", V1)
    assert oom_kills(proc) is None
    assert oom_kills(tmp_path / "none") is None


def test_only_two_readings_tell_a_rise() -> None:
    assert [risen(2, 5), risen(5, 5), risen(None, 5), risen(5, None)] == [3, 0, None, None]


@given(groups=st.text(max_size=200), mounts=st.text(max_size=400))
def test_whatever_proc_says_nothing_is_raised(
    tmp_path_factory: pytest.TempPathFactory, groups: str, mounts: str
) -> None:
    proc = tmp_path_factory.mktemp("proc")
    (proc / "cgroup").write_text(groups, "utf-8", "replace")
    (proc / "mountinfo").write_text(mounts, "utf-8", "replace")
    assert oom_kills(proc) is None
