"""Blobs that are collected while they are uploaded again, and the space that they take."""

import hashlib
from contextlib import closing
from pathlib import Path
from threading import Barrier, Lock, Thread, get_ident

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashruntime.errors import StoreFull
from flashruntime.service.blob_files import SHARDS
from flashruntime.service.blob_guard import BlobGuard
from flashruntime.service.blobs import BlobStore

DATA = b"some bytes"
DIGEST = hashlib.sha256(DATA).hexdigest()


def store(root: Path, max_total_bytes: int = 0) -> BlobStore:
    made = BlobStore(root / "artifacts", 1_000, max_total_bytes)
    made.open()
    return made


def put(blobs: BlobStore, data: bytes = DATA) -> str:
    with closing(blobs.upload()) as upload:
        return upload.finish(data, None)


class Story:
    """An upload pins, places, writes its row, unpins; a collection looks and takes at once."""

    def __init__(self) -> None:
        self.guard = BlobGuard()
        self.there, self.named = True, False
        self.upload = "unpin"

    def pin(self) -> None:
        if self.upload == "unpin":
            self.upload = "pin"
            self.guard.pin("d")

    def place(self) -> None:
        if self.upload == "pin":
            self.upload, self.there = "place", True

    def row(self) -> None:
        if self.upload == "place":
            self.upload, self.named = "row", True

    def unpin(self) -> None:
        if self.upload == "row":
            self.upload = "unpin"
            self.guard.unpin("d")

    def drop(self) -> None:
        self.named = False

    def collect(self) -> None:
        if not self.named:
            self.there = self.there and not self.guard.take("d", lambda: 0)


STEPS = ["pin", "place", "row", "unpin", "drop", "collect"]


@given(st.lists(st.sampled_from(STEPS), max_size=40))
@settings(max_examples=150)
def test_no_order_of_upload_and_removal_loses_what_a_row_names(steps: list[str]) -> None:
    story = Story()
    for step in steps:
        getattr(story, step)()
        assert story.there or not story.named
        assert story.there or story.upload not in {"place", "row"}


def test_an_upload_of_the_same_bytes_survives_a_collection_beside_it(tmp_path: Path) -> None:
    """Threads: each upload writes its row under its pin, the collector takes what has no row."""
    blobs, rows, lost, ledger = store(tmp_path), set[str](), list[str](), Lock()
    begin = Barrier(3)

    def upload() -> None:
        begin.wait()
        for number in range(10):
            row = f"{get_ident()}-{number}"
            with closing(blobs.upload()) as part:
                part.finish(DATA, None)
                with ledger:
                    rows.add(row)
            if not blobs.whole(DIGEST, len(DATA)):
                lost.append(DIGEST)
            with ledger:
                rows.discard(row)

    def collect() -> None:
        begin.wait()
        while any(thread.is_alive() for thread in threads[:2]):
            with ledger:
                aside = None if rows else blobs.take_away(DIGEST)
            if aside is not None:
                aside.unlink()

    threads = [Thread(target=upload), Thread(target=upload), Thread(target=collect)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert lost == []
    assert list((blobs.root / "tmp").iterdir()) == []


def test_a_blob_is_taken_away_unless_it_is_being_uploaded(tmp_path: Path) -> None:
    blobs = store(tmp_path)
    put(blobs)
    with closing(blobs.upload()) as upload:
        upload.finish(DATA, None)
        assert blobs.take_away(DIGEST) is None
        assert blobs.whole(DIGEST, len(DATA))
    aside = blobs.take_away(DIGEST)
    assert aside is not None
    assert aside.read_bytes() == DATA
    assert not blobs.whole(DIGEST, len(DATA))
    assert blobs.take_away(DIGEST) is None


def test_the_bytes_in_use_are_counted_whatever_comes_and_goes(tmp_path: Path) -> None:
    blobs = store(tmp_path)
    first = put(blobs)
    put(blobs, b"other")
    for shard in SHARDS:
        blobs.listing(shard)
    assert blobs.guard.used_bytes == 15
    put(blobs)
    put(blobs, b"123")
    assert blobs.guard.used_bytes == 18
    assert blobs.take_away(first) is not None
    assert blobs.guard.used_bytes == 8
    for shard in SHARDS:
        blobs.listing(shard)
    assert blobs.guard.used_bytes == 8


def test_a_store_that_is_full_refuses_while_the_bytes_arrive(tmp_path: Path) -> None:
    blobs = store(tmp_path, 20)
    put(blobs)
    for shard in SHARDS:
        blobs.listing(shard)
    with closing(blobs.upload()) as upload:
        upload.write(b"x" * 6)
        with closing(blobs.upload()) as second, pytest.raises(StoreFull, match=r"FLASHML_MAX_STO"):
            second.write(b"y" * 5)
        upload.finish(b"z" * 4, None)
    with closing(blobs.upload()) as third, pytest.raises(StoreFull, match=r"holds 20 .* hold 20"):
        third.write(b"y")
    with pytest.raises(StoreFull):
        blobs.guard.arrive(1, announced=True)
    assert list((blobs.root / "tmp").iterdir()) == []
    assert blobs.take_away(DIGEST) is not None
    put(blobs, b"y" * 10)


def test_a_rotten_file_is_set_aside_unless_a_good_one_has_taken_its_place(tmp_path: Path) -> None:
    blobs = store(tmp_path)
    put(blobs)
    inode = blobs.inode(DIGEST)
    assert inode is not None
    put(blobs)
    assert not blobs.quarantine(DIGEST, inode)
    assert blobs.whole(DIGEST, len(DATA))
    inode = blobs.inode(DIGEST)
    assert inode is not None
    assert blobs.quarantine(DIGEST, inode)
    assert (blobs.root / "quarantine" / DIGEST).read_bytes() == DATA
    put(blobs)
    assert list((blobs.root / "quarantine").iterdir()) == []


def test_l15_nothing_is_removed_or_set_aside_through_a_link(tmp_path: Path) -> None:
    blobs = store(tmp_path)
    put(blobs)
    shard = blobs.root / "sha256" / DIGEST[:2]
    shard.rename(tmp_path / "moved")
    shard.symlink_to(tmp_path / "moved")
    assert blobs.listing(DIGEST[:2]) == []
    assert blobs.take_away(DIGEST) is None
    assert blobs.inode(DIGEST) is None
    assert not blobs.quarantine(DIGEST, (tmp_path / "moved" / DIGEST).stat().st_ino)
    assert (tmp_path / "moved" / DIGEST).read_bytes() == DATA
