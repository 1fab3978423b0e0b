"""Bytes of checkpoints in the care of the store: kept while needed, gone with what needed them."""

from pathlib import Path
from typing import Any

from flashruntime.protocol.events import EventType
from flashruntime.service.collector import collect
from tests.unit.service.test_checkpoints_service import Attempt, Play, play, sha

__all__ = ["play"]


def blobs(attempt: Attempt, *datas: bytes) -> list[Path]:
    return [path for data in datas if (path := attempt.blob(data)).exists()]


def test_only_bytes_that_no_checkpoint_and_no_announcement_names_are_collected(play: Play) -> None:
    async def story(attempt: Attempt) -> None:
        await attempt.send(1, b"frozen", b"one")
        await attempt.announce(b"two")
        await attempt.put(b"two")
        every = [sha(data) for data in (b"frozen", b"one", b"two")]
        assert await collect(attempt.core, every) == 0
        await attempt.announce(b"three")
        assert await collect(attempt.core, every) == 1
        assert blobs(attempt, b"frozen", b"one", b"two") == blobs(attempt, b"frozen", b"one")

    play(story)


def test_what_retention_drops_frees_its_room_at_once(play: Play) -> None:
    async def story(attempt: Attempt) -> None:
        for step in range(1, 6):
            await attempt.send(step, b"frozen", b"own %d" % step)
        own = [b"own %d" % step for step in range(1, 6)]
        assert blobs(attempt, *own) == [attempt.blob(data) for data in own[2:]]
        assert blobs(attempt, b"frozen")

    play(story)


def test_a_deleted_job_frees_the_bytes_of_its_checkpoints(play: Play) -> None:
    async def story(attempt: Attempt) -> None:
        await attempt.send(1, b"frozen", b"one")
        manager: Any = attempt.core.manager
        await attempt.core.ledger(manager.cancel_job, attempt.lease.job_id)
        await attempt.core.ledger(manager.delete_job, attempt.lease.job_id)
        freed: list[str] = []
        while not (purged := await attempt.core.ledger(manager.purge)).done:
            freed += purged.freed
        assert await collect(attempt.core, freed) == 2

    play(story)


def test_rotten_bytes_of_a_checkpoint_are_told_to_its_job(play: Play) -> None:
    async def story(attempt: Attempt) -> None:
        await attempt.send(1, b"one")
        manager: Any = attempt.core.manager
        [concern] = await attempt.core.ledger(manager.note_damage, sha(b"one"), "rotted")
        assert (concern.job_id, concern.task_id) == (attempt.lease.job_id, attempt.lease.task_id)
        events = await attempt.core.ledger(manager.events, attempt.lease.job_id, 0, 1_000)
        assert EventType.ARTIFACT_CORRUPT in {event.type for event in events.items}

    play(story)
