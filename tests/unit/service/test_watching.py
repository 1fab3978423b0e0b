"""What is seen from outside: metrics, event streams, overview, request ids."""

import asyncio
import json
import re
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from flashruntime.config import AccessSettings, CoordinatorSettings
from flashruntime.leases.record import EventRow
from flashruntime.leases.sqlite import SqliteStore
from flashruntime.leases.sqlite_reader import (
    CHUNK_BYTES,
    DEPTH,
    Found,
    LedgerEvent,
    LedgerReader,
)
from flashruntime.protocol.events import Event, EventType
from flashruntime.protocol.failures import EndedBy, Evidence
from flashruntime.protocol.jobs import JobSpec
from flashruntime.protocol.tasks import (
    ClaimRequest,
    CompleteRequest,
    FailRequest,
    HeartbeatRequest,
    Lease,
)
from flashruntime.service.app import create_app
from flashruntime.service.core import DATABASE, Core
from flashruntime.service.feed import MAX_KEPT, MAX_KEPT_BYTES, Recent
from flashruntime.service.guards import Gate
from flashruntime.service.metrics import Histogram
from flashruntime.service.services import Services
from flashruntime.service.stream import EventStreams, TooManyStreams, Wanted
from flashruntime.service.watching import Watching
from flashruntime.testing import ManualClock

METRICS_PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"


def spec(tasks: int = 1, name: str = "j", lease_s: float = 30) -> JobSpec:
    parameters: dict[str, Any] = {"command": ["true", "{i}"], "lease_seconds": lease_s}
    parameters["task_params"] = [{"i": index} for index in range(tasks)]
    return JobSpec.model_validate(
        {
            "apiVersion": "flashml.dev/v1alpha1",
            "kind": "Job",
            "metadata": {"name": name},
            "spec": {"workload": {"type": "command", "parameters": parameters}},
        }
    )


@dataclass
class Stage:
    """A coordinator with its application, on a clock that the test moves."""

    core: Core
    watching: Watching
    clock: ManualClock
    http: httpx.AsyncClient

    async def submit(self, job: JobSpec) -> str:
        return (await Services(self.core).jobs.submit(job, None)).job_id

    async def claim(self, node: str = "n1") -> Lease:
        lease = await self.core.ledger(self.core.manager.claim, ClaimRequest(node_id=node))
        assert lease is not None
        return lease

    async def complete(self, lease: Lease) -> bool:
        done = CompleteRequest(outputs=[])
        return (await self.core.ledger(self.core.manager.complete, lease.lease_id, done)).accepted

    async def metrics(self) -> dict[str, float]:
        """Return the samples by name and labels, without the buckets."""
        answer = await self.http.get("/metrics")
        samples: dict[str, float] = {}
        for family in text_string_to_metric_families(answer.text):
            for sample in family.samples:
                labels = ",".join(f"{k}={v}" for k, v in sorted(sample.labels.items()))
                samples[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
        return samples


def play(root: Path, story: Callable[[Stage], Awaitable[None]]) -> None:
    """Run `story` against a coordinator below `root`."""

    async def run() -> None:
        async with staged(root) as stage:
            await asyncio.wait_for(story(stage), 20)

    asyncio.run(run())


@asynccontextmanager
async def staged(root: Path) -> AsyncIterator[Stage]:
    clock = ManualClock()
    core = Core(CoordinatorSettings(root / "ledger", root / "artifacts", 10_000_000), clock)
    app = create_app()
    core.on_commit = app.state.observed.committed
    watching = Watching(root / "ledger" / DATABASE, core.closing, app.state.observed)
    await core.open()
    try:
        async with watching.running(core.changed):
            app.state.services = services = Services(core)
            app.state.watching = watching
            access = AccessSettings(allow_open=True, allowed_hosts=frozenset({"*"}))
            app.state.gate = Gate(access, services.lease_owner)
            services.stepped = watching.stepped
            transport = httpx.ASGITransport(app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://t") as http:
                yield Stage(core, watching, clock, http)
    finally:
        core.closing.set()
        await core.close()


def test_metrics_follow_a_task_from_its_loss_to_its_next_step(tmp_path: Path) -> None:
    """Detection counts from the last sign of life, recovery from when the task could be claimed."""

    async def story(stage: Stage) -> None:
        ledger, manager = stage.core.ledger, stage.core.manager
        await stage.submit(spec(tasks=2))
        lost = await stage.claim()
        await ledger(manager.heartbeat, lost.lease_id, HeartbeatRequest(step=5))
        stage.clock.advance(30.5)
        await ledger(manager.sweep)
        stage.clock.advance(0.25)
        await stage.metrics()
        again = await stage.claim("n2")
        assert again.task_id == lost.task_id
        before = await stage.metrics()
        assert before["flashruntime_leases_expired_total{reason=deadline_passed}"] == 1
        assert before["flashruntime_detection_seconds_sum{reason=deadline_passed}"] == 30.5
        assert before["flashruntime_recovery_seconds_sum{until=claimed}"] == 0.25
        assert before["flashruntime_claims_total{result=granted}"] == 2
        assert before["flashruntime_tasks{state=LEASED}"] == before["flashruntime_leases_live"] == 1
        for step in (5, 6, 7):
            body = {"step": step}
            await stage.http.post(f"/v1alpha1/attempts/{again.lease_id}/heartbeat", json=body)
        assert await stage.complete(again)
        assert not await stage.complete(lost)
        after = await stage.metrics()
        assert after["flashruntime_recovery_seconds_count{until=first_new_step}"] == 1
        assert after["flashruntime_heartbeats_total{kind=attempt,result=renewed}"] == 3
        assert after["flashruntime_commits_total{result=accepted}"] == 1
        assert after["flashruntime_commits_total{result=rejected}"] == 1
        assert after["flashruntime_tasks{state=PENDING}"] == 1
        assert after["flashruntime_events_total{type=TASK_CREATED}"] == 2
        assert after["flashruntime_ledger_commit_seconds_count"] > 5

    play(tmp_path, story)


def test_each_metric_is_exposed_as_documented(tmp_path: Path) -> None:
    """Names, types, labels and buckets stand on the page as they are exposed."""

    async def story(stage: Stage) -> None:
        text = (await stage.http.get("/metrics")).text
        assert text.endswith("\n")
        list(text_string_to_metric_families(text))
        kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
        page = METRICS_PAGE.read_text()
        rows = [line.split("|")[1:4] for line in page.splitlines() if line.startswith("| `")]
        documented = {
            name.strip(" `"): (kind.strip(), labels.strip(" `")) for name, kind, labels in rows
        }
        documented = {name: row for name, row in documented.items() if name in kinds}
        made = stage.watching.registry.metrics
        assert documented == {
            metric.name: (kinds[metric.name], ", ".join(metric.labels)) for metric in made
        }
        for metric in made:
            if isinstance(metric, Histogram):
                assert ", ".join(f"{bound:g}" for bound in metric.buckets) + " s" in page

    play(tmp_path, story)


def test_requests_are_counted_by_route_and_never_by_what_a_client_makes_up(tmp_path: Path) -> None:
    """A label is a route template, a known method or a status: their number is bounded."""

    async def story(stage: Stage) -> None:
        for path in ("/v1alpha1/jobs/job-a", "/v1alpha1/jobs/job-b", "/nowhere", "/else"):
            await stage.http.get(path)
        await stage.http.request("BREW", "/v1alpha1/jobs")
        await stage.http.post("/v1alpha1/leases/claim", json={"node_id": "n"})
        found = await stage.metrics()
        name = "flashruntime_http_requests_total"
        counted = {key: value for key, value in found.items() if key.startswith(name)}
        assert counted == {
            f"{name}{{method=GET,route=/v1alpha1/jobs/{{job_id}},status=404}}": 2,
            f"{name}{{method=GET,route=(none),status=404}}": 2,
            f"{name}{{method=OTHER,route=/v1alpha1/jobs,status=405}}": 1,
            f"{name}{{method=POST,route=/v1alpha1/leases/claim,status=204}}": 1,
        }
        assert found["flashruntime_claims_total{result=empty}"] == 1

    play(tmp_path, story)


async def events_of(stage: Stage, wanted: Wanted, after: int, count: int) -> list[Event]:
    """Read a stream until it has brought `count` events."""
    found: list[Event] = []
    stream = await stage.watching.streams.open(wanted, after)
    try:
        async for block in stream:
            lines = [line for line in block.decode().splitlines() if line.startswith("data: ")]
            found += [Event.model_validate_json(line[6:]) for line in lines]
            if len(found) >= count:
                return found
    finally:
        await stream.aclose()
    return found


async def stored(stage: Stage) -> list[Event]:
    page = await stage.core.ledger(stage.core.manager.events, None, 0, 10_000)
    return page.items


def test_a_stream_resumes_anywhere_without_loss_or_repetition(tmp_path: Path) -> None:
    """What a stream brings beyond an id is what the ledger holds beyond it."""

    async def story(stage: Stage) -> None:
        first = await stage.submit(spec(tasks=700))
        second = await stage.submit(spec(tasks=3))
        lease = await stage.claim()
        await stage.complete(lease)
        await stage.watching.metrics()
        events = await stored(stage)
        for after in (0, 1, 350, 702, len(events) - 1):
            assert await events_of(stage, Wanted(), after, len(events) - after) == events[after:]
        for job in (first, second):
            own = [event for event in events if event.job_id == job]
            assert await events_of(stage, Wanted(job), 0, len(own)) == own
            few = [event for event in own if event.type is not EventType.TASK_CREATED]
            assert await events_of(stage, Wanted(job, created=False), 0, len(few)) == few

    play(tmp_path, story)


def test_a_stream_goes_over_from_the_past_to_what_happens_now(tmp_path: Path) -> None:
    """Events that become durable while the past is sent come once, after it."""

    async def story(stage: Stage) -> None:
        await stage.submit(spec(tasks=250))
        before = len(await stored(stage))
        reading = asyncio.create_task(events_of(stage, Wanted(), 0, before + 60))
        for _ in range(20):
            await stage.complete(await stage.claim())
        await stage.submit(spec(tasks=30))
        found = await reading
        assert found == (await stored(stage))[: len(found)]

    play(tmp_path, story)


def test_streams_end_with_the_coordinator_and_their_number_is_bounded(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        stage.watching.streams.most = 2
        opened = [await stage.watching.streams.open(Wanted(), 0) for _ in range(2)]
        for stream in opened:
            await anext(stream)
        refused = await stage.http.get("/v1alpha1/events", headers={"Accept": "text/event-stream"})
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
        rest = [asyncio.create_task(_drained(stream)) for stream in opened]
        stage.core.closing.set()
        await asyncio.gather(*rest)
        assert (await stage.metrics())["flashruntime_event_streams"] == 0

    play(tmp_path, story)


async def _drained(stream: AsyncIterator[bytes]) -> None:
    async for _ in stream:
        pass


def test_streams_that_open_at_once_are_bounded_too(tmp_path: Path) -> None:
    async def refused(streams: EventStreams) -> int:
        asked = [streams.open(Wanted(), 0) for _ in range(5)]
        opened = await asyncio.gather(*asked, return_exceptions=True)
        return sum(isinstance(each, TooManyStreams) for each in opened)

    async def story(stage: Stage) -> None:
        streams = stage.watching.streams
        streams.most = 2
        assert await refused(streams) == 3
        await asyncio.sleep(0)
        assert await anext(await streams.open(Wanted(), 0))

    play(tmp_path, story)


def test_a_silent_stream_says_that_it_lives_and_where_it_is(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        stage.watching.streams.heartbeat_s = 0.01
        stream = await stage.watching.streams.open(Wanted("job-other"), 2**40)
        blocks = [await anext(stream) for _ in range(2)]
        assert blocks == [b"retry: 1000\nid: 1\n\n", b": no news\nid: 1\n\n"]
        await stream.aclose()

    play(tmp_path, story)


def test_the_overview_and_a_jobs_tasks_at_a_glance(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        name = '<img src=x onerror="alert(1)">'
        job_id = await stage.submit(spec(tasks=4, name=name))
        assert await stage.complete(await stage.claim())
        failed = await stage.claim()
        evidence = Evidence(ended_by=EndedBy.EXIT, exit_code=1, log_tail="x" * 5_000)
        request = FailRequest(reason="no", evidence=evidence)
        await stage.core.ledger(stage.core.manager.fail, failed.lease_id, request, stage.core.judge)
        await stage.claim()
        await stage.watching.metrics()
        told = (await stage.http.get("/v1alpha1/overview")).json()
        assert [(job["job_id"], job["name"]) for job in told["jobs"]] == [(job_id, name)]
        assert told["open"] == {"jobs": 1, "PENDING": 2, "LEASED": 1}
        grid = (await stage.http.get(f"/v1alpha1/jobs/{job_id}/grid")).json()
        assert (grid["states"], grid["attempts"]) == ("CWLP", "1110")
        about = (await stage.http.get(f"/v1alpha1/jobs/{job_id}/tasks/1/events")).json()
        assert [event["type"] for event in about["items"]][:3] == [
            "TASK_CREATED",
            "LEASE_CLAIMED",
            "TASK_ATTEMPT_FAILED",
        ]
        assert "log_tail" not in json.dumps(about)
        past = (await stage.http.get("/v1alpha1/history?limit=3")).json()
        assert [event["id"] for event in past["items"]] == sorted(
            event.id for event in (await stored(stage))[-3:]
        )
        assert (await stage.http.get("/v1alpha1/jobs/job-none/grid")).status_code == 404

    play(tmp_path, story)


def test_a_request_id_names_the_request_in_answer_and_error(tmp_path: Path) -> None:
    """A client's id is taken if it is plain, else one is made; errors carry it too."""

    async def story(stage: Stage) -> None:
        for given, kept in [("trace-1:a.b", True), ("x" * 129, False), ('"}{', False), ("", False)]:
            answer = await stage.http.get("/v1alpha1/jobs/none", headers={"X-Request-ID": given})
            found = answer.headers["X-Request-ID"]
            assert answer.json()["request_id"] == found
            assert (found == given) is kept
            assert re.fullmatch(r"[A-Za-z0-9._:-]{1,128}", found)

    play(tmp_path, story)


def test_the_queue_is_counted_by_open_jobs_alone(tmp_path: Path) -> None:
    """However many jobs have ended and however many tasks there are: an index holds the open."""
    SqliteStore(tmp_path / DATABASE).close()
    with closing(sqlite3.connect(tmp_path / DATABASE)) as db:
        plan = db.execute(f"EXPLAIN QUERY PLAN {DEPTH}").fetchall()
    assert ["jobs USING INDEX jobs_open" in step[-1] for step in plan] == [True]


def test_what_is_kept_of_events_is_bounded_and_complete(tmp_path: Path) -> None:
    recent = Recent(0)
    sent = [_event(number) for number in range(1, 3 * MAX_KEPT)]
    for at in range(0, len(sent), 500):
        batch = sent[at : at + 500]
        recent.add(batch, batch[-1].id)
        begins = recent.begins_after
        assert recent.after(begins - 1, 10) is None or begins == 0
        assert recent.after(begins, 10**6) == (sent[begins : at + 500], True)
        assert at + 500 - begins <= 2 * MAX_KEPT + 500
    recent.add([_event(10**6, "x" * MAX_KEPT_BYTES), _event(10**6 + 1)], 10**6 + 1)
    assert recent.after(recent.begins_after, 10) == ([_event(10**6 + 1)], True)


def test_large_events_come_in_small_pieces_and_each_comes_once(tmp_path: Path) -> None:
    """What a stream or the metrics hold at once does not grow with what workers send."""
    large = "x" * (CHUNK_BYTES // 3)
    texts = [large, "", large, large, large, "", "", "x" * (2 * CHUNK_BYTES), "", large]
    with closing(SqliteStore(tmp_path / DATABASE)) as store, store.transaction() as tx:
        kind, now = EventType.TASK_ATTEMPT_FAILED, datetime.now(UTC)
        rows = [EventRow(0, kind, "j", "t", "l", now, 0, "b", json.dumps(each)) for each in texts]
        tx.append(rows)
    reader, recent = LedgerReader(tmp_path / DATABASE), Recent(0)
    with closing(reader):
        recent.add(_in_pieces(reader.events), len(texts))
    sizes = [len(event.data_json) for event in _in_pieces(recent.after)]
    assert sizes == [len(each) + 2 for each in texts]


def _in_pieces(ask: Callable[[int, int], Found | None]) -> list[LedgerEvent]:
    events: list[LedgerEvent] = []
    found = ask(0, 100)
    while found is not None and found.events:
        size_bytes = sum(len(event.data_json) for event in found.events)
        assert size_bytes <= CHUNK_BYTES or len(found.events) == 1
        events += found.events
        found = None if found.all else ask(events[-1].id, 100)
    return events


def _event(number: int, data: str = "{}") -> LedgerEvent:
    return LedgerEvent(number, "LEASE_CLAIMED", "j", "t", "l", "", 0, "", None, None, data)


def test_the_page_may_load_nothing_from_elsewhere_and_names_only_files_that_are_there(
    tmp_path: Path,
) -> None:
    async def story(stage: Stage) -> None:
        page = await stage.http.get("/")
        policy = page.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "://" not in page.text
        assert "style=" not in page.text
        todo = set(re.findall(r'(?:src|href)="(/page/[^"]+)"', page.text))
        seen: set[str] = set()
        while todo:
            path = todo.pop()
            seen.add(path)
            answer = await stage.http.get(path)
            assert answer.status_code == 200, path
            assert not re.search(r"innerHTML|eval\(|https?://(?!www.w3.org)", answer.text), path
            imports = re.findall(r'from "\./([\w.]+)"', answer.text)
            todo |= {f"/page/{name}" for name in imports} - seen
            etag = {"If-None-Match": answer.headers["ETag"]}
            assert (await stage.http.get(path, headers=etag)).status_code == 304
        assert len(seen) >= 5

    play(tmp_path, story)
