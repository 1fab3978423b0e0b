"""Which files of an attempt are its outputs."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

import pytest

from flashruntime.launch.outputs import Placed, Places, collect, read_metrics, signature
from flashruntime.protocol.jobs import InputFile, Outputs
from flashruntime.protocol.tasks import ArtifactRecord
from flashruntime.worker.control import AttemptControl, StopRequest
from flashruntime.worker.ports import Coordinator
from flashruntime.worker.transfer import fetch_inputs
from flashruntime.worker.workspace import Workspace

DIGEST = "0" * 64
NOBODY = 65534


class Store:
    """The one call of a coordinator that fetching makes."""

    def get_artifact(self, key: str, to: Path, sha256: str | None = None) -> ArtifactRecord:
        to.write_text(key)
        return ArtifactRecord(uri="", object_key=key, sha256=sha256 or "", size_bytes=1)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    made = Workspace(tmp_path / "attempt")
    made.create()
    return made


def fetch(workspace: Workspace, *paths: str) -> dict[str, Placed]:
    inputs = [InputFile(path=path, key="k", sha256=DIGEST, executable=True) for path in paths]
    control = AttemptControl(StopRequest(1.0))
    return fetch_inputs(inputs, workspace, cast(Coordinator, Store()), control)


def test_inputs_are_placed_with_their_permission(workspace: Workspace) -> None:
    fetch(workspace, "a/b/run.sh")
    assert os.access(workspace.files / "a/b/run.sh", os.X_OK)


@pytest.mark.parametrize("paths", [("a", "a"), ("a", "a/b")])
def test_inputs_that_contradict_one_another_are_refused(
    workspace: Workspace, paths: tuple[str, ...]
) -> None:
    with pytest.raises(OSError, match=r"a"):
        fetch(workspace, *paths)


def test_an_output_is_taken_from_the_output_directory_first(workspace: Workspace) -> None:
    (workspace.output / "m").write_text("1")
    (workspace.files / "m").write_text("2")
    found = collect(Outputs(required=["m"], optional=["none"]), workspace.places, {}).found
    assert found == {"m": workspace.output / "m"}


def test_an_input_that_was_rewritten_is_an_output(workspace: Workspace) -> None:
    placed = fetch(workspace, "m")
    (workspace.files / "m").write_text("new")
    assert collect(Outputs(required=["m"]), workspace.places, placed).problems == []


def test_an_input_that_the_job_made_unreadable_is_no_output() -> None:
    with TemporaryDirectory() as root, without_privileges(root):
        (Path(root) / "m").write_text("1")
        placed = {"m": Placed("0" * 64, signature(Path(root) / "m"))}
        (Path(root) / "m").chmod(0)
        collected = collect(Outputs(required=["m"]), Places(Path(root) / "o", Path(root)), placed)
    assert "m: an input that cannot be read any more (Permission denied)" in collected.problems


@contextmanager
def without_privileges(directory: str) -> Iterator[None]:
    if os.geteuid() != 0:
        yield
        return
    os.chown(directory, NOBODY, -1)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_link_below_or_to_an_output_is_not_followed(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret/m").touch()
    (workspace.files / "dir").symlink_to(tmp_path / "secret")
    (workspace.output / "m").symlink_to(tmp_path / "secret/m")
    collected = collect(Outputs(required=["dir/m", "m"]), workspace.places, {})
    assert collected.found == {}
    assert all("symbolic link" in problem for problem in collected.problems)


def test_a_directory_that_the_job_replaced_by_a_link_holds_no_outputs(
    workspace: Workspace, tmp_path: Path
) -> None:
    (tmp_path / "m").touch()
    workspace.output.rmdir()
    workspace.output.symlink_to(tmp_path)
    assert collect(Outputs(required=["m"]), workspace.places, {}).found == {}


def test_removing_an_attempt_never_touches_what_it_links_to(
    workspace: Workspace, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    kept.mkdir(mode=0o500)
    workspace.output.rmdir()
    workspace.output.symlink_to(kept)
    workspace.files.chmod(0)
    workspace.remove()
    assert not workspace.root.exists()
    linked = Workspace(tmp_path / "linked")
    linked.root.symlink_to(kept)
    linked.remove()
    assert kept.stat().st_mode & 0o777 == 0o500


def test_a_path_that_leaves_the_attempt_is_refused(workspace: Workspace) -> None:
    outputs = Outputs.model_construct(required=["../x"], optional=[])
    with pytest.raises(ValueError, match=r"\.\."):
        collect(outputs, workspace.places, {})


def test_linked_metrics_are_not_read(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text('{"acc": 1}')
    (workspace.files / "metrics.json").symlink_to(tmp_path / "other.json")
    assert read_metrics(workspace.places, {}) == (None, [])
