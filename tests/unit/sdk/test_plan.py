"""The source of a run's attempts."""

from pathlib import Path

from flashruntime.sdk.plan import SNAPSHOT_PREFIX, Limits, Plan
from flashruntime.sdk.workload import CommandWorkload


def test_a_copy_of_the_source_that_broke_off_is_made_anew(tmp_path: Path) -> None:
    """As on a disk that was full for a moment."""
    (tmp_path / "source").mkdir()
    (tmp_path / "source/train.py").touch()
    workload = CommandWorkload("true", source=tmp_path / "source")
    plan = Plan("job-1", tmp_path / "out", workload, Limits(max_restarts=1), 1, 1)
    partial = tmp_path / "out" / f"{SNAPSHOT_PREFIX}job-1"
    partial.mkdir(parents=True)
    (partial / "torn").touch()
    plan.source().copy(tmp_path / "work")
    assert [path.name for path in (tmp_path / "work").iterdir()] == ["train.py"]
