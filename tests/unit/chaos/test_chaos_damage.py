"""Damage to files, on trees and blobs that lie as the runtime lays them."""

import base64
import hashlib
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chaos.ports.disks import Mode
from chaos.targets.inside import bytework, damage, room, rot, tree
from flashruntime.checkpoint import Chain, Claim, Snapshot

CHOICES = st.integers(0, 2**31 - 1)
HARMFUL = [mode for mode in Mode if mode is not Mode.FOREIGN_FILE]
FEW = settings(
    max_examples=2,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors],
)


def saved(root: Path) -> Path:
    chain = Chain.begin(root, Claim("one", "job", 0), keep=None)
    for step in (10, 20, 30, 40):
        parts = {name: hashlib.sha512(f"{name}{step}".encode()).digest() for name in "abc"}
        chain.save(Snapshot(step, parts))
    return root


def struck(root: Path, mode: str, choice: int, depth: int = 1) -> dict[str, Any]:
    return damage.answer({"root": str(root), "mode": mode, "depth": depth, "choice": choice})


def states(root: Path) -> dict[int, str]:
    steps = tree.answer({"root": str(root), "hash": True})["steps"]
    return {step["step"]: "valid" if step["state"] == "valid" else "bad" for step in steps}


def resumed_from(root: Path) -> int | None:
    found = Chain.begin(root, Claim("two", "job", 1), keep=None).resume()
    return None if found is None else found.step


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("tree"))


@pytest.fixture
def trees(original: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Each call gives a tree of its own with four checkpoints."""
    return lambda: Path(shutil.copytree(original, tmp_path_factory.mktemp("trees") / "tree"))


@pytest.mark.parametrize("mode", HARMFUL)
@FEW
@given(choice=CHOICES, depth=st.integers(1, 2))
def test_every_kind_of_damage_is_seen_by_another_process_and_by_the_runtime(
    trees: Any, mode: Mode, choice: int, depth: int
) -> None:
    root = trees()
    told = struck(root, mode, choice, depth)
    hit = [step["step"] for step in told["steps"]]
    assert hit == [40, 30][:depth]
    for step in told["steps"]:
        assert step["counts"]
        assert any(file["before"] != file["after"] for file in step["files"])
        assert all(file["before"] is not None for file in step["files"])
    assert states(root) == {step: "bad" if step in hit else "valid" for step in (40, 30, 20, 10)}
    assert resumed_from(root) == 40 - 10 * depth


@FEW
@given(choice=CHOICES)
def test_a_foreign_file_makes_no_checkpoint_worse_and_none_is_taken_for_a_newer_one(
    trees: Any, choice: int
) -> None:
    root = trees()
    (step,) = struck(root, "foreign_file", choice)["steps"]
    (file,) = step["files"]
    assert (step["counts"], file["before"]) == (False, None)
    assert file["after"] is not None
    assert {number for number, state in states(root).items() if state == "valid"} >= {40, 30}
    assert resumed_from(root) == 40


@pytest.mark.parametrize("form", range(3))
def test_a_rolled_back_checkpoint_never_lends_its_name_to_the_older_one(
    trees: Any, form: int
) -> None:
    """Whoever reads the volume must not take the step that was copied for the one that is bad."""
    root = trees()
    choice = next(n for n in range(99) if bytework.Spot.of(n).number % 3 == form)
    struck(root, "roll_back", choice)
    newest, older = tree.answer({"root": str(root), "hash": True})["steps"][:2]
    assert newest["state"] == "corrupt"
    assert newest.get("manifest_id") != older["manifest_id"]


@pytest.mark.parametrize(("mode", "depth"), [("zero", 5), ("roll_back", 4), ("flip_bits", 5)])
def test_with_too_few_checkpoints_nothing_is_touched(trees: Any, mode: str, depth: int) -> None:
    root = trees()
    told = struck(root, mode, 1, depth)
    assert (told["steps"], bool(told["reason"])) == ([], True)
    assert set(states(root).values()) == {"valid"}


def test_parts_that_are_alike_cannot_be_swapped(tmp_path: Path) -> None:
    Chain.begin(tmp_path, Claim("one", "job", 0), keep=None).save(
        Snapshot(10, {"a": b"same", "b": b"same"})
    )
    assert "no two parts" in struck(tmp_path, "swap", 1)["reason"]


def test_what_reads_the_hash_is_no_part_of_this_process(tmp_path: Path) -> None:
    path = tmp_path / "it's a \\ name"
    path.write_bytes(b"x")
    assert bytework.read_by_another(path) == hashlib.sha256(b"x").hexdigest()
    assert bytework.read_by_another(tmp_path / "none") is None


def stored(root: Path, *contents: bytes) -> list[str]:
    digests = [hashlib.sha256(data).hexdigest() for data in contents]
    for digest, data in zip(digests, contents, strict=True):
        path = rot.blob(root, digest)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return digests


@pytest.mark.parametrize("mode", [mode for mode in HARMFUL if mode is not Mode.GARBAGE_MANIFEST])
def test_the_largest_blob_rots_and_what_it_was_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: Mode
) -> None:
    monkeypatch.setattr(rot, "KEPT", tmp_path / "kept")
    digests = stored(tmp_path, b"small", b"the largest one" * 9, b"the second" * 9)
    request = {"root": str(tmp_path), "mode": mode, "digests": digests, "choice": 7}
    told = rot.answer(request)
    assert told["files"][0]["digest"] == digests[1]
    for file in told["files"]:
        assert file["before"] == file["digest"] != file["after"]
        kept = rot.answer({"kept": file["digest"]})["data"]
        assert hashlib.sha256(base64.b64decode(kept)).hexdigest() == file["digest"]
    assert len(told["files"]) == (2 if mode is Mode.SWAP else 1)
    assert rot.answer({"kept": digests[0]}) == {"data": None}


def test_what_blobs_do_not_have_is_not_damaged(tmp_path: Path) -> None:
    digests = stored(tmp_path, b"one")
    for mode, wanted in (("garbage_manifest", digests), ("swap", digests), ("zero", ["0" * 64])):
        request = {"root": str(tmp_path), "mode": mode, "digests": wanted, "choice": 1}
        told = rot.answer(request)
        assert told["files"] == []
        assert told["reason"]
    assert rot.blob(tmp_path, digests[0]).read_bytes() == b"one"


@pytest.mark.parametrize("what", ["fill", "remount"])
def test_a_volume_that_is_a_directory_of_a_larger_disk_is_never_filled_or_remounted(
    tmp_path: Path, what: str
) -> None:
    request = {"do": what, "root": str(tmp_path), "read_only": True, "timeout_s": 0.0}
    told = room.answer(request)
    assert told["refused"]
    assert [*tmp_path.iterdir()] == []
    assert os.access(tmp_path, os.W_OK)


def test_a_mount_of_the_whole_machine_is_refused_too() -> None:
    assert room.refusal("/") is not None


def test_the_right_to_write_is_taken_from_every_directory_and_given_back(tmp_path: Path) -> None:
    deep = tmp_path / "sha256" / "aa"
    deep.mkdir(parents=True)
    before = [path.stat().st_mode for path in (tmp_path, deep.parent, deep)]
    room.answer({"do": "forbid", "root": str(tmp_path)})
    assert not any(path.stat().st_mode & 0o222 for path in (tmp_path, deep.parent, deep))
    room.answer({"do": "permit", "root": str(tmp_path)})
    room.answer({"do": "permit", "root": str(tmp_path)})
    assert [path.stat().st_mode for path in (tmp_path, deep.parent, deep)] == before


def test_the_filler_goes_away_and_the_probe_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / room.FILLER).write_bytes(b"x")
    for what in ("drain", "drain", "probe"):
        told = room.answer({"do": what, "root": str(tmp_path)})
        assert (told["errno"], told["refused"]) == (None, None)
        assert 0 < told["free_bytes"] <= told["total_bytes"]
    assert [*tmp_path.iterdir()] == []
