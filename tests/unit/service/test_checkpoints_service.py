"""Checkpoints through the coordinator's services: bytes first, then the commit."""

import asyncio
import hashlib
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from flashruntime.checkpoint.manifest import seal
from flashruntime.config import CoordinatorSettings
from flashruntime.errors import ArtifactCorrupt, Conflict, FlashError, NotFound, Superseded
from flashruntime.protocol.checkpoints import CommitRequest, PartSize, PartsRequest, TaskName
from flashruntime.protocol.jobs import JobSpec
from flashruntime.protocol.tasks import ClaimRequest, Lease
from flashruntime.service.core import Core
from flashruntime.service.errors import BadHeader, TooLarge
from flashruntime.service.services import Services
from flashruntime.testing import ManualClock

SPEC = JobSpec.model_validate(
    {
        "apiVersion": "flashml.dev/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "j"},
        "spec": {"workload": {"type": "command", "parameters": {"command": ["true"]}}},
    }
)


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


async def stream(*chunks: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


class Attempt:
    """An attempt that has claimed the only task, and what it does with checkpoints."""

    def __init__(self, core: Core, lease: Lease) -> None:
        self.core = core
        self.lease = lease
        self.name = TaskName(lease.job_id, "0")
        self.checkpoints = Services(core).checkpoints

    async def announce(self, *datas: bytes) -> list[str]:
        parts = [PartSize(sha256=sha(data), size_bytes=len(data)) for data in datas]
        request = PartsRequest(lease_id=self.lease.lease_id, parts=parts)
        return (await self.checkpoints.announce(self.name, request)).missing

    async def put(self, *chunks: bytes, sha256: str | None = None) -> None:
        digest = sha256 or sha(b"".join(chunks))
        await self.checkpoints.put_part(self.name, self.lease.lease_id, digest, stream(*chunks))

    def manifest(self, step: int, *datas: bytes, **more: Any) -> dict[str, Any]:
        fields = {
            "schema_version": "v1alpha1",
            "manifest_id": f"ckpt-{step}",
            "job_id": self.lease.job_id,
            "attempt_id": self.lease.lease_id,
            "step": step,
            "framework": "none",
            "world_size": 1,
            "compatible_world_sizes": [1],
            "parts": [
                {"key": f"p{n}", "sha256": sha(data), "size_bytes": len(data)}
                for n, data in enumerate(datas)
            ],
            "created": "2026-01-01T00:00:00+00:00",
            "checkpoint_duration_s": 0.125,
            "metadata": {"naïve": [1.0, None]},
        }
        found: dict[str, Any] = json.loads(seal({**fields, **more}))
        return found

    async def commit(self, manifest: dict[str, Any]) -> None:
        request = CommitRequest(lease_id=self.lease.lease_id, manifest=manifest)
        await self.checkpoints.commit(self.name, request)

    async def send(self, step: int, *datas: bytes) -> None:
        missing = await self.announce(*datas)
        for data in datas:
            if sha(data) in missing:
                await self.put(data)
        await self.commit(self.manifest(step, *datas))

    async def read(self, sha256: str) -> bytes:
        size_bytes, blocks = await self.checkpoints.read_part(self.name, sha256)
        data = b"".join([block async for block in blocks])
        assert len(data) == size_bytes
        return data

    async def latest(self) -> int | None:
        found = (await self.checkpoints.latest(self.name, [])).checkpoint
        return None if found is None else found.step

    def blob(self, data: bytes) -> Path:
        return self.core.blobs.root / "sha256" / sha(data)[:2] / sha(data)

    def files(self) -> int:
        return len([path for path in self.core.blobs.root.glob("sha256/*/*") if path.is_file()])


@pytest.fixture
def play(tmp_path: Path) -> Callable[[Callable[[Attempt], Awaitable[None]]], None]:
    async def run(story: Callable[[Attempt], Awaitable[None]]) -> None:
        core = Core(CoordinatorSettings(tmp_path / "l", tmp_path / "a"), ManualClock())
        await core.open()
        try:
            await Services(core).jobs.submit(SPEC, None)
            lease = await core.ledger(core.manager.claim, ClaimRequest(node_id="n"))
            assert lease is not None
            await asyncio.wait_for(story(Attempt(core, lease)), 10)
        finally:
            await core.close()

    return lambda story: asyncio.run(run(story))


Play = Callable[[Callable[[Attempt], Awaitable[None]]], None]


def test_a_checkpoint_comes_back_as_it_was_sent(play: Play) -> None:
    """Its manifest too, to the byte: the digest over itself must go on to match."""

    async def story(attempt: Attempt) -> None:
        await attempt.send(7, b"model", b"x" * 3_000_000)
        found = await attempt.checkpoints.latest(attempt.name, [])
        assert found.manifest == attempt.manifest(7, b"model", b"x" * 3_000_000)
        for data in (b"model", b"x" * 3_000_000):
            assert await attempt.read(sha(data)) == data

    play(story)


def test_what_is_in_the_store_is_not_asked_for_again(play: Play) -> None:
    async def story(attempt: Attempt) -> None:
        await attempt.send(1, b"frozen", b"one")
        assert await attempt.announce(b"frozen", b"two", b"two") == [sha(b"two")]
        await attempt.put(b"tw", b"o")
        await attempt.commit(attempt.manifest(2, b"frozen", b"two"))
        assert attempt.files() == 3

    play(story)


def test_l3_a_manifest_for_bytes_that_are_not_there_is_refused(play: Play) -> None:
    async def story(attempt: Attempt) -> None:
        await attempt.announce(b"a", b"b")
        await attempt.put(b"a")
        with pytest.raises(Conflict, match="p1"):
            await attempt.commit(attempt.manifest(1, b"a", b"b"))
        assert await attempt.latest() is None
        await attempt.put(b"b")
        await attempt.commit(attempt.manifest(1, b"a", b"b"))
        assert await attempt.latest() == 1

    play(story)


@pytest.mark.parametrize("damage", ["rotted", "cut", "gone"])
def test_bytes_that_were_there_and_are_damaged_are_asked_for_again(play: Play, damage: str) -> None:
    """A coordinator that has started again has seen nothing hash yet."""

    async def story(attempt: Attempt) -> None:
        await attempt.send(1, b"frozen")
        again = Attempt(attempt.core, attempt.lease)
        content = {"rotted": b"frozeN", "cut": b"froz"}.get(damage)
        again.blob(b"frozen").unlink()
        if content is not None:
            again.blob(b"frozen").write_bytes(content)
        with pytest.raises(Conflict, match="p0"):
            await again.commit(again.manifest(2, b"frozen"))
        with pytest.raises(ArtifactCorrupt):
            await again.read(sha(b"frozen"))
        assert await again.latest() is None
        await again.send(3, b"frozen")
        assert await again.latest() == 3

    play(story)


def test_the_next_older_is_given_where_the_bytes_of_the_newest_are_gone(play: Play) -> None:
    async def story(attempt: Attempt) -> None:
        await attempt.send(1, b"one")
        await attempt.send(2, b"two")
        attempt.blob(b"two").unlink()
        assert await attempt.latest() == 1
        found = await attempt.checkpoints.latest(attempt.name, ["ckpt-1"])
        assert found.checkpoint is None
        assert [each.attempt_number for each in found.lineage] == [1]

    play(story)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"digest": "0" * 64}, "digest"),
        ({"step": 2}, "digest"),
        ({"parts": []}, "digest"),
        ({"more": 1}, "digest"),
    ],
)
def test_a_manifest_that_was_changed_is_refused(
    play: Play, change: dict[str, Any], words: str
) -> None:
    async def story(attempt: Attempt) -> None:
        await attempt.announce(b"a")
        await attempt.put(b"a")
        with pytest.raises(Conflict, match=words):
            await attempt.commit({**attempt.manifest(1, b"a"), **change})

    play(story)


@pytest.mark.parametrize("key", ["../p", "a/b", ".hidden", "manifest.json", "", "x" * 201])
def test_c2_part_keys_must_be_plain_names(play: Play, key: str) -> None:
    async def story(attempt: Attempt) -> None:
        await attempt.announce(b"a")
        await attempt.put(b"a")
        parts = [{"key": key, "sha256": sha(b"a"), "size_bytes": 1}]
        with pytest.raises(Conflict, match="format"):
            await attempt.commit(attempt.manifest(1, parts=parts))

    play(story)


@pytest.mark.parametrize(
    ("chunks", "digest", "error"),
    [
        ((b"abcd",), sha(b"abc"), TooLarge),
        ((b"ab",), sha(b"abc"), BadHeader),
        ((b"abd",), sha(b"abc"), BadHeader),
        ((b"x",), sha(b"x"), Conflict),
    ],
)
def test_only_the_announced_bytes_are_taken(
    play: Play, chunks: tuple[bytes, ...], digest: str, error: type[FlashError]
) -> None:
    async def story(attempt: Attempt) -> None:
        await attempt.announce(b"abc")
        with pytest.raises(error):
            await attempt.put(*chunks, sha256=digest)
        assert attempt.files() == 0
        assert list((attempt.core.blobs.root / "tmp").iterdir()) == []

    play(story)


def test_parts_of_no_checkpoint_of_the_task_are_not_given_out(play: Play) -> None:
    async def story(attempt: Attempt) -> None:
        await attempt.announce(b"a")
        await attempt.put(b"a")
        with pytest.raises(NotFound):
            await attempt.read(sha(b"a"))

    play(story)


def test_a_superseded_attempt_can_do_nothing(play: Play) -> None:
    async def story(attempt: Attempt) -> None:
        await attempt.send(1, b"one")
        core = attempt.core
        core.clock.advance(1e6)  # type: ignore[attr-defined]
        await core.ledger(core.manager.sweep)
        assert await core.ledger(core.manager.claim, ClaimRequest(node_id="other")) is not None
        for call in (
            lambda: attempt.announce(b"two"),
            lambda: attempt.put(b"one"),
            lambda: attempt.commit(attempt.manifest(2, b"one")),
            lambda: attempt.commit({"not": "a manifest"}),
        ):
            with pytest.raises(Superseded):
                await call()
        await attempt.commit(attempt.manifest(1, b"one"))
        assert await attempt.latest() == 1

    play(story)


def test_a_commit_does_not_wait_for_the_scrubber(play: Play) -> None:
    """What it frees is deleted while a large blob is being read again."""

    async def story(attempt: Attempt) -> None:
        reading = threading.Event()
        scrub = asyncio.create_task(attempt.core.scrub(reading.wait))
        try:
            for step in range(1, 10):
                await asyncio.wait_for(attempt.send(step, b"part of %d" % step), 5)
        finally:
            reading.set()
            await scrub
        assert not attempt.blob(b"part of 1").exists()

    play(story)


def test_a_commit_of_parts_that_are_announced_no_more_is_refused(play: Play) -> None:
    """They may be collected between the look at their bytes and the commit."""

    async def story(attempt: Attempt) -> None:
        await attempt.announce(b"first")
        await attempt.put(b"first")
        await attempt.announce(b"second")
        with pytest.raises(Conflict, match="announced no more"):
            await attempt.commit(attempt.manifest(1, b"first"))
        await attempt.announce(b"first")
        await attempt.commit(attempt.manifest(1, b"first"))
        await attempt.commit(attempt.manifest(1, b"first"))

    play(story)
