"""Content-addressed bytes."""

import hashlib
import os
from contextlib import closing
from pathlib import Path

import pytest

from flashruntime.errors import ArtifactCorrupt, ConfigError, StoreLocked
from flashruntime.service.blobs import BlobStore, require_writable, stated_digest
from flashruntime.service.errors import BadHeader, TooLarge

DATA = b"some bytes"
DIGEST = hashlib.sha256(DATA).hexdigest()


@pytest.fixture
def blobs(tmp_path: Path) -> BlobStore:
    store = BlobStore(tmp_path / "artifacts", 1_000)
    store.open()
    return store


def put(blobs: BlobStore, data: bytes = DATA, expected: str | None = None) -> str:
    with closing(blobs.upload()) as upload:
        upload.write(data[:4])
        return upload.finish(data[4:], expected)


def leftovers(blobs: BlobStore) -> list[Path]:
    return list((blobs.root / "tmp").iterdir())


def test_what_was_put_is_read_back_under_its_digest(blobs: BlobStore) -> None:
    assert put(blobs, expected=DIGEST) == DIGEST
    with blobs.read(DIGEST, len(DATA)) as file:
        assert file.read() == DATA
    assert (blobs.root / "sha256" / DIGEST[:2] / DIGEST).read_bytes() == DATA
    assert leftovers(blobs) == []


def test_an_empty_blob_is_a_blob(blobs: BlobStore) -> None:
    digest = put(blobs, b"")
    with blobs.read(digest, 0) as file:
        assert file.read() == b""


def test_putting_the_same_bytes_again_repairs_a_damaged_copy(blobs: BlobStore) -> None:
    put(blobs)
    (blobs.root / "sha256" / DIGEST[:2] / DIGEST).write_bytes(b"other bits")
    put(blobs)
    with blobs.read(DIGEST, len(DATA)) as file:
        assert file.read() == DATA


def test_an_upload_that_is_left_unfinished_leaves_nothing(blobs: BlobStore) -> None:
    with closing(blobs.upload()) as upload:
        upload.write(DATA)
        assert len(leftovers(blobs)) == 1
    assert leftovers(blobs) == []


def test_bytes_beyond_the_limit_are_refused_while_they_arrive(blobs: BlobStore) -> None:
    with closing(blobs.upload()) as upload:
        upload.write(b"x" * 600)
        with pytest.raises(TooLarge, match="FLASHML_MAX_ARTIFACT_BYTES"):
            upload.write(b"x" * 600)
    assert leftovers(blobs) == []


def test_bytes_that_do_not_hash_as_stated_are_refused(blobs: BlobStore) -> None:
    with pytest.raises(BadHeader, match="send them again"):
        put(blobs, expected="0" * 64)
    assert leftovers(blobs) == []
    with pytest.raises(ArtifactCorrupt):
        blobs.read(DIGEST, len(DATA))


def test_a_start_removes_what_a_dead_process_left_half_written(blobs: BlobStore) -> None:
    (blobs.root / "tmp" / "half").write_bytes(b"x")
    blobs.close()
    blobs.open()
    assert leftovers(blobs) == []


def test_a_second_process_does_not_get_the_same_root(blobs: BlobStore) -> None:
    second = BlobStore(blobs.root, 1_000)
    with pytest.raises(StoreLocked, match="FLASHML_ARTIFACT_DIR"):
        second.open()
    blobs.close()
    second.open()


def test_a_symlink_in_place_of_a_blob_is_not_followed(blobs: BlobStore, tmp_path: Path) -> None:
    put(blobs)
    outside = tmp_path / "outside"
    outside.write_bytes(DATA)
    blob = blobs.root / "sha256" / DIGEST[:2] / DIGEST
    blob.unlink()
    blob.symlink_to(outside)
    with pytest.raises(ArtifactCorrupt):
        blobs.read(DIGEST, len(DATA))


def test_a_symlink_in_place_of_a_shard_is_not_followed(blobs: BlobStore, tmp_path: Path) -> None:
    put(blobs)
    shard = blobs.root / "sha256" / DIGEST[:2]
    shard.rename(tmp_path / "moved")
    shard.symlink_to(tmp_path / "moved")
    with pytest.raises(ArtifactCorrupt):
        blobs.read(DIGEST, len(DATA))


def test_a_truncated_blob_is_not_given_out(blobs: BlobStore) -> None:
    put(blobs)
    (blobs.root / "sha256" / DIGEST[:2] / DIGEST).write_bytes(DATA[:3])
    with pytest.raises(ArtifactCorrupt, match="3 of 10 bytes"):
        blobs.read(DIGEST, len(DATA))


def test_a_directory_that_cannot_be_used_is_named_with_the_uid(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ConfigError, match=rf"FLASHML_X=.*file.*uid {os.getuid()}"):
        require_writable(tmp_path / "file", "FLASHML_X")


def test_119_upper_case_digests_are_equal_and_other_spellings_refused() -> None:
    assert stated_digest(DIGEST.upper()) == DIGEST
    assert stated_digest(None) is None
    for wrong in (
        f"sha256:{DIGEST}",
        f" {DIGEST}",
        DIGEST[:-1],
        DIGEST + "0",
        "null",
        "",
        "٣" * 64,
    ):
        with pytest.raises(BadHeader, match="64 hexadecimal"):
            stated_digest(wrong)
