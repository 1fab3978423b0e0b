"""A run on disk: what an event costs, and what survives."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from flashruntime.protocol.events import EventType
from flashruntime.protocol.jobs import JobState
from flashruntime.sdk.journal import Journal, Mirror, RunDocument, read_run
from flashruntime.testing import ManualClock

STARTED = EventType.ATTEMPT_STARTED


def document(reason: str | None = None) -> RunDocument:
    return RunDocument.model_construct(
        job_id="job-1", state=JobState.RUNNING, reason=reason, command=["x"], mode="command",
        parallel=1, max_restarts=0, primary_metric=None, maximize=True, pid=1, boot_id="b",
        started_at=datetime(2026, 1, 1, tzinfo=UTC), ended_at=None, tasks={}, params=[], trials=[],
        attempts=[], artifacts=[], events=[], events_total=0, history=[],
    )  # fmt: skip


def test_event_10000_costs_what_event_10_costs(tmp_path: Path) -> None:
    """Counted in bytes written: one line each, and run.json only when its time has come."""
    clock = ManualClock()
    journal = Journal(tmp_path, "job-1", clock)
    written: list[int] = []
    mirror = Mirror(tmp_path / "run.json", lambda: written.append(1) or document(), clock)
    sizes = []
    for number in range(10_000):
        journal.append(STARTED, data={"n": number % 10})
        mirror.touch()
        mirror.write_if_due()
        if number in {8, 9, 9_998, 9_999}:
            sizes.append((tmp_path / "journal.jsonl").stat().st_size)
    early, late = sizes[1] - sizes[0], sizes[3] - sizes[2]
    assert late - early == len("9999") - len("9") + 0
    assert len(written) == 1
    clock.advance(60)
    mirror.write_if_due()
    assert len(written) == 2


def test_the_mirror_is_written_more_rarely_the_more_it_costs(tmp_path: Path) -> None:
    clock = ManualClock()

    def slow() -> RunDocument:
        clock.advance(0.5)
        return document()

    mirror = Mirror(tmp_path / "run.json", slow, clock)
    mirror.touch()
    assert mirror.due_in_s() == 0
    mirror.write_if_due()
    assert mirror.due_in_s() is None
    mirror.touch()
    assert mirror.due_in_s() == pytest.approx(10.0)


def test_ids_go_on_after_a_torn_last_line(tmp_path: Path) -> None:
    first = Journal(tmp_path, "job-1", ManualClock())
    first.append(STARTED)
    first.append(STARTED)
    first.close()
    path = tmp_path / "journal.jsonl"
    with path.open("ab") as file:
        file.write(b'{"id":3,"ty')
    second = Journal(tmp_path, "job-2", ManualClock())
    assert second.append(STARTED).id == 3
    second.close()
    lines = path.read_text().splitlines()
    assert [json.loads(line)["id"] for line in (*lines[:2], lines[3])] == [1, 2, 3]


def test_text_that_is_no_unicode_and_nan_are_strict_json(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "job-1", ManualClock())
    event = journal.append(STARTED, data={"reason": "\udcff\0", "x": float("nan")})
    journal.close()
    [line] = (tmp_path / "journal.jsonl").read_text().splitlines()
    assert json.loads(line, parse_constant=pytest.fail)["data"] == {"reason": "?\0", "x": None}
    assert event.data["x"] is None


def test_a_disk_that_takes_nothing_more_does_not_end_a_run(tmp_path: Path) -> None:
    (tmp_path / "journal.jsonl").symlink_to("/dev/full")
    journal = Journal(tmp_path, "job-1", ManualClock())
    assert journal.append(STARTED).id == 1
    assert journal.append(STARTED).id == 2
    assert len(journal.events) == 2
    mirror = Mirror(tmp_path / "gone" / "run.json", document, ManualClock())
    mirror.write()
    assert mirror.due_in_s() is not None, "it is tried again"


def test_a_disk_that_stays_full_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mirror = Mirror(tmp_path / "gone" / "run.json", document, ManualClock())
    mirror.write()
    mirror.write()
    assert len(caplog.records) == 1
    (tmp_path / "gone").mkdir()
    mirror.write()
    assert read_run(tmp_path / "gone") is not None
    assert mirror.due_in_s() is None


def test_run_json_is_read_back_and_anything_else_is_not(tmp_path: Path) -> None:
    Mirror(tmp_path / "run.json", lambda: document("why"), ManualClock()).write(durable=True)
    found = read_run(tmp_path)
    assert found is not None
    assert (found.reason, found.contract) == ("why", "viewer_v1")
    assert list(tmp_path.iterdir()) == [tmp_path / "run.json"]
    (tmp_path / "run.json").write_text("[]")
    assert read_run(tmp_path) is None
    assert read_run(tmp_path / "nothing") is None
