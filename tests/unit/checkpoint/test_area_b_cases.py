"""Real-world failures of checkpoint files, each under its id."""

import json
import math
import os
import resource
import signal
from collections import UserDict
from hashlib import sha256

import pytest

from flashruntime.checkpoint import Chain, Claim, Snapshot, inspect
from flashruntime.checkpoint.manifest import seal
from flashruntime.errors import CheckpointError, InvalidInput


def forge(tree, directory, **changes):
    """Give a step a manifest whose own digest is right but whose content was changed."""
    path = tree.step(directory) / "manifest.json"
    fields = {**json.loads(path.read_bytes()), **changes}
    fields.pop("digest")
    path.write_bytes(seal(fields))


def resumed(tree):
    successor = tree.begin()
    found = successor.resume()
    return (found.step if found else None), successor.rejections


def test_045_a_truncated_part_means_the_step_before_and_names_the_part(tree, save):
    save(tree.begin(), 100, 200)
    os.truncate(tree.step(200) / "model.bin", 2950)
    step, rejections = resumed(tree)
    assert step == 100
    assert [(r.step, r.kind, r.part) for r in rejections] == [(200, "corrupt", "model.bin")]
    assert "2950 bytes instead of 3000" in rejections[0].reason
    assert tree.step(200).is_dir(), "the broken directory is kept"


def test_045_a_flipped_bit_means_the_step_before(tree, save):
    save(tree.begin(), 100, 200)
    path = tree.step(200) / "model.bin"
    data = bytearray(path.read_bytes())
    data[1234] ^= 1
    path.write_bytes(data)
    step, rejections = resumed(tree)
    assert (step, rejections[0].part) == (100, "model.bin")


def test_047_an_empty_part_is_refused_when_saving(tree):
    with pytest.raises(InvalidInput, match=r"'model\.bin' has 0 bytes"):
        tree.begin().save(Snapshot(1, {"model.bin": b""}))
    assert tree.kinds() == {}


def test_047_an_empty_part_that_matches_its_manifest_is_not_resumed_from(tree, save):
    save(tree.begin(), 100, 200)
    (tree.step(200) / "model.bin").write_bytes(b"")
    empty = {"key": "model.bin", "size_bytes": 0, "sha256": sha256(b"").hexdigest()}
    forge(tree, 200, parts=[empty])
    assert resumed(tree)[0] == 100


def test_047_a_state_without_parts_is_refused(tree):
    with pytest.raises(InvalidInput, match="no parts"):
        tree.begin().save(Snapshot(1, {}))


def test_049_parts_without_a_manifest_are_ignored_and_replaced_by_the_next_save(tree, save):
    save(tree.begin(), 100)
    tree.step(200).mkdir()
    (tree.step(200) / "stale.bin").write_bytes(b"half")
    successor = tree.begin()
    assert successor.resume().step == 100
    assert [r.kind for r in successor.rejections] == ["torn"]
    save(successor, 200)
    names = sorted(path.name for path in tree.step(200).iterdir())
    assert names == ["manifest.json", "model.bin", "optimizer.bin"]
    quarantined = list((tree.root / ".quarantine").glob("step-000200.*/stale.bin"))
    assert len(quarantined) == 1, "what was there is kept, with the reason beside it"
    note = json.loads(next((tree.root / ".quarantine").glob("*.json")).read_bytes())
    assert note["reason"].startswith("torn")


@pytest.mark.parametrize(
    "text",
    [b"", b'{"step": 200, "par', b"[]", b"null", b'{"step":"200","parts":[]}', b"\xff\xfe",
     b"1e999", b'{"step":200,"parts":"model.pt"}', b'{"a":1,"a":2}', b'{"a":NaN}', b"[" * 100_000],
)  # fmt: skip
def test_051_a_broken_manifest_hides_only_its_own_step(tree, save, text):
    save(tree.begin(), 100, 200)
    (tree.step(200) / "manifest.json").write_bytes(text)
    step, rejections = resumed(tree)
    assert (step, rejections[0].part) == (100, "manifest.json")


def test_051_a_byte_order_mark_hides_only_its_own_step(tree, save):
    save(tree.begin(), 100, 200)
    path = tree.step(200) / "manifest.json"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert resumed(tree)[0] == 100


def test_051_an_empty_parts_list_is_not_complete(tree, save):
    save(tree.begin(), 100, 200)
    forge(tree, 200, parts=[])
    assert resumed(tree)[0] == 100


def test_051_a_manifest_of_another_step_hides_its_step(tree, save):
    save(tree.begin(), 100, 200)
    forge(tree, 200, step=100)
    assert resumed(tree)[0] == 100


def test_051_a_manifest_that_is_a_pipe_does_not_hang_the_reader(tree, save):
    save(tree.begin(), 100, 200)
    (tree.step(200) / "manifest.json").unlink()
    os.mkfifo(tree.step(200) / "manifest.json")
    assert resumed(tree)[0] == 100


@pytest.mark.parametrize("key", ["../step-000100/model.bin", "/etc/hostname", "a\\b", ""])
def test_053_a_part_that_points_outside_rejects_the_whole_checkpoint(tree, save, key):
    save(tree.begin(), 100, 200)
    forge(tree, 200, parts=[{"key": key, "sha256": "0" * 64, "size_bytes": 1}])
    step, rejections = resumed(tree)
    assert (step, rejections[0].part) == (100, "manifest.json")


def test_053_a_part_that_is_a_symbolic_link_is_not_followed(tree, save):
    save(tree.begin(), 100, 200)
    part = tree.step(200) / "model.bin"
    part.rename(tree.root / "elsewhere")
    part.symlink_to(tree.root / "elsewhere")
    step, rejections = resumed(tree)
    assert (step, rejections[0].part) == (100, "model.bin")


def test_053_a_step_that_is_a_symbolic_link_is_foreign_and_gives_way(tree, save):
    save(tree.begin(), 100)
    tree.step(200).symlink_to(tree.step(100))
    successor = tree.begin()
    assert successor.resume().step == 100
    save(successor, 200)
    assert not tree.step(200).is_symlink()
    assert set(tree.kinds().values()) == {"valid"}


def test_055_a_dangling_pointer_plays_no_part(tree, save):
    save(tree.begin(), 100, 200)
    (tree.root / "latest").symlink_to("step-000300")
    assert resumed(tree)[0] == 200


def test_057_steps_are_ordered_as_numbers(tree, save):
    save(tree.begin(), 999_999, 1_000_000)
    assert resumed(tree)[0] == 1_000_000


def test_057_a_second_spelling_of_a_step_is_reported_and_never_used(tree, save):
    save(tree.begin(), 7)
    tree.step(7).rename(tree.root / "step-0000007")
    save(tree.begin(), 6)
    assert tree.kinds() == {"step-000006": "valid", "step-0000007": "foreign"}


def test_059_file_times_play_no_part(tree, save):
    chain = tree.begin(keep=2)
    save(chain, 100, 300)
    for step, seconds in ((300, 0), (100, 4_070_908_800)):
        for path in [*tree.step(step).iterdir(), tree.step(step)]:
            os.utime(path, (seconds, seconds))
    save(chain, 400)
    assert list(tree.kinds()) == ["step-000400", "step-000300"]
    assert resumed(tree)[0] == 400


@pytest.mark.parametrize("keep", [0, -1, True, 1.5, "3"])
def test_061_a_senseless_keep_is_refused(tree, keep):
    with pytest.raises(InvalidInput, match="keep must be an integer of at least 1"):
        tree.begin(keep=keep)


def test_061_keep_none_keeps_all_and_keep_one_keeps_the_newest(tree, save):
    save(tree.begin(keep=None), 1, 2, 3)
    assert len(tree.kinds()) == 3
    save(tree.begin(keep=1), 4)
    assert tree.kinds() == {"step-000004": "valid"}


def write_limited(limit_bytes, action):
    """Run an action in a child whose files cannot grow beyond a limit; return its answer."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes))
        try:
            answer = action()
        except BaseException as error:  # noqa: BLE001 (a child must never run the rest of the suite)
            answer = f"{type(error).__name__}: {error}"
        os.write(writer, str(answer).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return answer


def test_061_and_067_a_save_that_finds_no_room_leaves_the_older_one_and_nothing_else(tree, save):
    chain = tree.begin(keep=1)
    save(chain, 1)
    answer = write_limited(5_000_000, lambda: save(chain, 2, size_bytes=10_000_000))
    assert answer.startswith("CheckpointError: the checkpoint of step 2 could not be written")
    assert "File too large" in answer
    assert "earlier checkpoints are untouched" in answer
    assert tree.kinds() == {"step-000001": "valid"}, "no staged data either"
    save(chain, 3)
    assert tree.kinds() == {"step-000003": "valid"}


def test_063_a_state_that_changes_after_the_call_does_not_change_the_checkpoint(tree):
    weights = bytearray(1000)
    tree.begin().save(Snapshot(1, {"w": weights}))
    weights[:] = b"9" * 1000
    assert tree.begin().resume().parts["w"] == bytes(1000)


def test_065_the_temporary_directory_of_the_system_plays_no_part(tree, save, monkeypatch):
    monkeypatch.setenv("TMPDIR", "/dev/shm")
    chain = tree.begin()
    save(chain, 1)
    inside = {entry.stat().st_dev for entry in tree.root.rglob("*")}
    assert inside == {tree.root.stat().st_dev}


def test_065_a_file_system_without_hard_links_or_permissions_works(tree, save, monkeypatch):
    """No such file system can be mounted without privileges, so the calls are refused instead."""

    def refused(*args, **kwargs):
        raise PermissionError(1, "Operation not permitted")

    for name in ("link", "chmod", "chown", "symlink"):
        monkeypatch.setattr(os, name, refused)
    save(tree.begin(), 1, 2)
    assert resumed(tree)[0] == 2
    assert len(list((tree.root / ".lineage").glob("*.json"))) == 2


def test_071_metadata_becomes_strict_json(tree):
    class Number:
        """A NumPy scalar or a 0-d tensor, as far as anybody can see."""

        shape = ()

        def item(self):
            return 1.5

    metadata = {"loss": math.nan, "best": -math.inf, "n": 10**30, "t": Number(), "lone": "\ud800"}
    manifest = tree.begin().save(Snapshot(7, {"w": b"1"}, metadata=metadata))
    expected = {"loss": None, "best": None, "n": str(10**30), "t": 1.5, "lone": "?"}
    assert manifest.metadata == expected
    text = (tree.step(7) / "manifest.json").read_text(encoding="ascii")
    assert json.loads(text, parse_constant=pytest.fail)["metadata"] == expected


@pytest.mark.parametrize("value", [{1, 2}, object(), b"raw", {1: 2}, UserDict, [{"deep": {3}}]])
def test_071_metadata_that_json_cannot_hold_is_refused_by_name_before_any_write(tree, value):
    chain = tree.begin()
    with pytest.raises(InvalidInput, match=r"metadata\.bad"):
        chain.save(Snapshot(7, {"w": b"1"}, metadata={"bad": value}))
    assert not (tree.root / ".staging").exists()


def test_071_metadata_that_contains_itself_is_refused(tree):
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(InvalidInput, match="deep"):
        tree.begin().save(Snapshot(7, {"w": b"1"}, metadata={"loop": loop}))


@pytest.mark.parametrize("step", [-1, 1.5, True, 10**20])
def test_071_a_senseless_step_is_refused_before_any_write(tree, step):
    with pytest.raises(InvalidInput, match="step must be an integer"):
        tree.begin().save(Snapshot(step, {"w": b"1"}))
    assert inspect(tree.root) == []


@pytest.mark.parametrize("key", ["caf\u00e9.pt", "cafe\u0301.pt"])
def test_073_part_names_are_restricted_to_plain_ascii(tree, key):
    with pytest.raises(InvalidInput, match="plain file name"):
        tree.begin().save(Snapshot(1, {key: b"1"}))


def test_c8_a_file_that_the_save_did_not_write_is_no_part(tree, save, content):
    save(tree.begin(), 1)
    (tree.step(1) / "core.123").write_bytes(b"dump")
    assert tree.begin().resume().parts == content(1)


def test_c1_a_tree_can_be_moved(tree, save, tmp_path, content):
    save(tree.begin(), 1)
    tree.root = tree.root.rename(tmp_path / "elsewhere")
    assert tree.begin().resume().parts == content(1)
    save(tree.attempts[-1], 2)
    assert str(tmp_path) not in "".join(p.read_text("latin-1") for p in tree.root.rglob("*.json"))


def test_a_tree_that_cannot_be_used_is_a_checkpoint_error(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(CheckpointError, match="must be a directory that this process may write"):
        Chain.begin(tmp_path / "file", Claim("a", "j"))
