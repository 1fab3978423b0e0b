"""Small objects: durable with the ledger, in files of their own a little later."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from flashruntime.clock import SystemClock
from flashruntime.config import CoordinatorSettings
from flashruntime.errors import NotFound, StoreUnavailable
from flashruntime.service.core import Core
from flashruntime.service.services import Services
from flashruntime.service.settler import Settler

DATA = b"twelve bytes"


def play(root: Path, story: Callable[[Core, Services], Awaitable[None]]) -> None:
    async def run() -> None:
        core = Core(CoordinatorSettings(root / "l", root / "a", 10_000), SystemClock())
        await core.open()
        try:
            await story(core, Services(core))
        finally:
            await core.close()

    asyncio.run(run())


async def put(services: Services, key: str, data: bytes = DATA) -> str:
    async def chunks() -> AsyncIterator[bytes]:
        yield data[:3]
        yield data[3:]

    return (await services.artifacts.put(key, chunks(), len(data), None)).sha256


async def stored(services: Services, key: str) -> bytes:
    record = await services.artifacts.find(key)
    blocks = await services.artifacts.read(record, 0, record.size_bytes)
    return b"".join([block async for block in blocks])


def files(root: Path) -> list[Path]:
    return [path for path in (root / "a" / "sha256").rglob("*") if path.is_file()]


def test_an_object_is_there_at_once_and_again_after_its_file_was_lost(tmp_path: Path) -> None:
    """A machine that loses power may keep the name of a file and none of its bytes."""

    async def before(_core: Core, services: Services) -> None:
        await put(services, "a")
        await put(services, "b", b"other")
        assert await stored(services, "a") == DATA

    async def after(core: Core, services: Services) -> None:
        assert (await stored(services, "a"), await stored(services, "b")) == (DATA, b"other")
        assert await core.ledger(core.manager.spooled, 0, 9) == []

    play(tmp_path, before)
    first, second = files(tmp_path)
    first.unlink()
    second.write_bytes(b"")
    play(tmp_path, after)


def test_bytes_that_are_written_anew_count_as_stored(tmp_path: Path) -> None:
    async def story(core: Core, services: Services) -> None:
        sha256 = await put(services, "a")
        core.blobs.listing(sha256[:2])
        stored_bytes = core.blobs.guard.used_bytes
        assert stored_bytes == len(DATA)
        [lost] = files(tmp_path)
        lost.write_bytes(b"")
        await core.ledger(core.small.restore)
        assert core.blobs.guard.used_bytes == stored_bytes + len(DATA)

    play(tmp_path, story)


def test_what_is_settled_is_no_longer_in_the_ledger(tmp_path: Path) -> None:
    async def story(core: Core, services: Services) -> None:
        await put(services, "a")
        await put(services, "b")
        assert len(await core.ledger(core.manager.spooled, 0, 9)) == 2
        assert not await Settler(core).settle()
        assert await core.ledger(core.manager.spooled, 0, 9) == []
        assert await stored(services, "b") == DATA

    play(tmp_path, story)


def test_a_disk_that_refused_once_is_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a failed fsync the system may have dropped the bytes; a second one proves nothing."""

    async def story(core: Core, services: Services) -> None:
        settler = Settler(core)
        digest = await put(services, "a")

        def refuse(_digests: object) -> None:
            (tmp_path / "a" / "sha256" / digest[:2] / digest).write_bytes(b"")
            raise StoreUnavailable("input/output error")

        with monkeypatch.context() as broken:
            broken.setattr(core.small, "sync", refuse)
            await settler._tick()
        assert len(await core.ledger(core.manager.spooled, 0, 9)) == 1
        await settler._tick()
        assert await stored(services, "a") == DATA
        assert await core.ledger(core.manager.spooled, 0, 9) == []

    play(tmp_path, story)


def test_a_ledger_that_refuses_has_no_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(core: Core, services: Services) -> None:
        def refuse(_key: str, _data: bytes) -> None:
            raise StoreUnavailable("no room")

        with monkeypatch.context() as broken:
            broken.setattr(core.manager, "spool", refuse)
            with pytest.raises(StoreUnavailable):
                await put(services, "a")
        with pytest.raises(NotFound):
            await services.artifacts.find("a")

    play(tmp_path, story)


def test_a_place_that_takes_no_files_is_a_refusal(tmp_path: Path) -> None:
    async def story(_core: Core, services: Services) -> None:
        for name in ("tmp", "sha256"):
            moved = tmp_path / "a" / f"{name}-moved"
            (tmp_path / "a" / name).rename(moved)
            with pytest.raises(StoreUnavailable, match="takes no more bytes"):
                await put(services, name)
            moved.rename(tmp_path / "a" / name)
        assert list((tmp_path / "a" / "tmp").iterdir()) == []

    play(tmp_path, story)
