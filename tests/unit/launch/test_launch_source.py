"""The copy of the source in which an attempt works."""

import os
from pathlib import Path

import pytest

from flashruntime.errors import InvalidInput
from flashruntime.launch import source
from flashruntime.launch.source import Tree


def names(root: Path) -> list[str]:
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*"))


def test_files_are_copied_and_what_tools_leave_is_not(tmp_path: Path) -> None:
    root = tmp_path / "source"
    for name in ("train.py", "pkg/a.py", ".git/config", "pkg/__pycache__/a.pyc", "data/big.bin",
                 "x.pt", "runs/local/task-000/x"):  # fmt: skip
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    (root / "run.sh").touch(0o755)
    Tree(root, ("data", "*.pt"), (root / "runs",)).copy(tmp_path / "copy")
    assert names(tmp_path / "copy") == ["pkg", "pkg/a.py", "run.sh", "train.py"]
    assert os.access(tmp_path / "copy/run.sh", os.X_OK)


def test_an_output_directory_inside_the_source_is_not_copied_into_itself(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    (tmp_path / "runs/earlier").mkdir(parents=True)
    for name in source.RUN_FILES:
        (tmp_path / "runs/earlier" / name).touch()
    Tree(tmp_path, inside=(tmp_path / "out",)).copy(tmp_path / "out" / "work")
    assert names(tmp_path / "out" / "work") == ["runs", "train.py"]


def test_links_lead_where_they_led(tmp_path: Path) -> None:
    root, data = tmp_path / "source", tmp_path / "data"
    root.mkdir()
    data.mkdir()
    (data / "x").write_text("data")
    (root / "a").write_text("a")
    (root / "inside").symlink_to("a")
    (root / "outside").symlink_to("../data")
    (root / "broken").symlink_to("/nonexistent")
    os.mkfifo(root / "pipe")
    Tree(root).copy(tmp_path / "deep" / "er" / "copy")
    copy = tmp_path / "deep" / "er" / "copy"
    assert (copy / "outside" / "x").read_text() == "data"
    assert (copy / "inside").readlink() == Path("a")
    assert (copy / "broken").is_symlink()
    assert not (copy / "pipe").exists()


def test_a_source_that_is_missing_or_too_large_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidInput, match="not a directory"):
        Tree(tmp_path / "nothing").copy(tmp_path / "copy")
    (tmp_path / "source").mkdir()
    for number in range(3):
        (tmp_path / "source" / str(number)).touch()
    monkeypatch.setattr(source, "MAX_FILES", 2)
    with pytest.raises(InvalidInput, match="more than 2 files"):
        Tree(tmp_path / "source").copy(tmp_path / "copy")
