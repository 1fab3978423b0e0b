"""How many cores a process may use is told by its affinity and its control group's quota."""

import os
from pathlib import Path

import pytest

from flashruntime.launch import cores


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine of 64 cores whose control group's files lie in the directory returned."""
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)), raising=False)
    monkeypatch.setattr(cores, "_QUOTA_V2", tmp_path / "cpu.max")
    monkeypatch.setattr(cores, "_QUOTA_V1", tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("quota", "usable"),
    [("200000 100000", 2), ("150000 100000", 1), ("50000 100000", 1), ("max 100000", 64)],
)
def test_173_a_quota_counts_and_not_the_cores_of_the_machine(
    machine: Path, quota: str, usable: int
) -> None:
    (machine / "cpu.max").write_text(quota + "\n")
    assert cores.usable_cores() == usable


@pytest.mark.parametrize(("quota", "usable"), [("200000", 2), ("-1", 64), ("", 64)])
def test_173_a_quota_of_the_older_kind_counts_too(machine: Path, quota: str, usable: int) -> None:
    (machine / "cpu.cfs_quota_us").write_text(quota)
    (machine / "cpu.cfs_period_us").write_text("100000")
    assert cores.usable_cores() == usable


def test_173_a_process_that_is_bound_to_one_core_has_one(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {5})
    assert cores.usable_cores() == 1
