"""Hosts, scenarios and runs for the tests of the benchmark suite."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.runner import Options
from benchmarks.scenario import Bench, Scenario
from benchmarks.schema import Host, Section

HOST = Host(
    os="Debian", cpu="CPU", cores=2, ram_gb=8.0, python="3.13.5", torch=None, flashruntime="0.1",
    kernel="6.1", load_1m=0.0, gpu=None, disk="ext4", commit="abc", place="host",
)  # fmt: skip


@pytest.fixture
def host() -> Host:
    return HOST


@pytest.fixture
def scenario() -> Callable[..., Scenario]:
    def build(run: Callable[[Bench], None] = lambda _: None, **fields: Any) -> Scenario:
        given = {
            "name": "some", "section": Section.PERFORMANCE, "hypothesis": "it is fast",
            "method": "by measuring", "unit": "s", "budget_s": 5.0, **fields,
        }  # fmt: skip
        return Scenario(run=run, **given)

    return build


@pytest.fixture
def bench(tmp_path: Path, scenario: Callable[..., Scenario]) -> Callable[..., Bench]:
    def build(**fields: Any) -> Bench:
        return Bench(**{"scenario": scenario(), "scratch": tmp_path, "repeats": 5, **fields})

    return build


@pytest.fixture
def options(tmp_path: Path) -> Options:
    return Options(out=tmp_path / "out.json", scratch=tmp_path, command="python -m benchmarks")
