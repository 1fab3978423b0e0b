"""A coordinator is killed again and again under eight clients; nothing it said may be untrue.

Every answer is kept account of, as is everything that was merely read. After each start what is
new is compared with what the coordinator shows; at the end everything is, with its own record of
events, and the bytes behind every row.
"""

import hashlib
import random
import shutil
import sqlite3
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

import pytest

from flashruntime import testing
from flashruntime.client import CoordinatorClient
from flashruntime.errors import NotFound
from flashruntime.protocol.events import Event, EventType
from flashruntime.protocol.jobs import JobState
from flashruntime.protocol.tasks import ClaimRequest, CompleteRequest, OutputFile, TaskRecord
from flashruntime.testing import CoordinatorProcess
from tests.integration.coordinator_players import (
    COMPLETED,
    FAILED,
    LEASE_S,
    Book,
    Held,
    Player,
    Submitted,
    check_task,
)

pytestmark = pytest.mark.integration
CLIENTS = 8
DRAIN_S = 120.0
MOST_CHECKED = 16
NS = 1_000_000_000
STAMP_NS = NS // 4
ENDS = {EventType.JOB_SUCCEEDED, EventType.JOB_FAILED, EventType.JOB_CANCELLED}


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a start takes long; that it comes up by itself is what counts."""
    monkeypatch.setattr(testing, "START_TIMEOUT_S", DRAIN_S)


@dataclass
class Storm:
    """A coordinator, its clients, and who kills it."""

    root: Path
    seed: int
    kills: int = 0
    kills_in_flight: int = 0
    kills_at_start: int = 0
    seen: dict[int, Event] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.process = CoordinatorProcess(self.root)
        self.book = Book(self.process.url)
        self.chance = random.Random(self.seed)

    def run(self, *, seconds: float, kills: int = 0, answers: int = 0) -> None:
        """Kill until so much time is over, and so many kills and answers are reached."""
        begin = monotonic()
        self.book.up.set()
        with ThreadPoolExecutor(CLIENTS) as threads, self.process.client() as client:
            players = [Player(self.book, number, self.seed) for number in range(CLIENTS)]
            playing = [threads.submit(player.play) for player in players]
            try:
                while (
                    monotonic() - begin < seconds
                    or self.kills < kills
                    or self.book.answered < answers
                ):
                    self.book.stop.wait(self.chance.choice([0.05, 0.2, 0.5, 1.0]))
                    self.kill()
                    self.check(client)
                    self.book.up.set()
                    raise_from(playing)
                self.book.stop.wait(0.2)
            finally:
                self.book.stop.set()
                self.book.up.set()
            for played in playing:
                played.result(60)

    def kill(self) -> None:
        """Kill it in the middle of its work, sometimes once more while it starts."""
        self.book.up.clear()
        self.kills_in_flight += self.book.busy > 0
        self.process.kill()
        self.kills += 1
        self.book.generation += 1
        if self.kills % 5 == 0:
            check_bytes(self.root, self.root / "copy")
        if self.chance.random() < 0.15:
            starting = self.process.launch()
            self.book.stop.wait(self.chance.uniform(0.3, 1.0))
            starting.kill()
            starting.wait()
            self.kills += 1
            self.kills_at_start += 1
            self.book.generation += 1
        self.process.start()

    def check(self, client: CoordinatorClient, most: int = MOST_CHECKED) -> None:
        """Compare what players were told last with what is shown now.

        The newest is most at risk; what is older is compared at the end.
        """
        with self.book.lock:
            touched, self.book.touched = list(self.book.touched)[-most:], {}
        self._check_leases(client, [each for each in touched if isinstance(each, Held)])
        self._check_jobs(client, [each for each in touched if isinstance(each, Submitted)])
        self._check_events(client, max(0, max(self.seen, default=0) - 200))

    def _check_leases(self, client: CoordinatorClient, touched: list[Held]) -> None:
        tasks: dict[str, list[TaskRecord]] = {}
        told = {held: (held.steps.known, held.fate.known) for held in touched}
        over = {held: held.over for held in touched}
        stored = {
            (held, path): found.known
            for held in touched
            for path, found in dict(held.objects).items()
        }
        for held in touched:
            name = held.lease.job_id
            tasks.setdefault(name, []) or tasks[name].extend(client.tasks(name))
            check_task(held, told[held], over[held], tasks[name][held.lease.task_index])
        for (held, path), since in stored.items():
            digest = self._digest(client, f"{held.lease.output_prefix}/{path}")
            assert digest in held.objects[path].may_be(since), (held.lease.lease_id, path)

    def _digest(self, client: CoordinatorClient, key: str) -> str | None:
        """Return the sha256 of what is stored under a key: `get_artifact` has compared it."""
        try:
            return client.get_artifact(key, self.root / "read").sha256
        except NotFound:
            return None

    def _check_jobs(self, client: CoordinatorClient, touched: list[Submitted]) -> None:
        for job in touched:
            cancelled, name = job.cancelled.sent[job.cancelled.known], job.job_id
            if name is not None:
                record = client.job(name)
                assert record.name == job.key
                assert record.state.terminal or not cancelled

    def _check_events(self, client: CoordinatorClient, after: int) -> None:
        """What was shown as an event is there for ever, under its number, and none is inserted."""
        missing = {number for number in self.seen if number > after}
        last = max(self.seen, default=0)
        while page := client.events(None, after, 5_000).items:
            for event in page:
                assert event.id > after
                assert event.id > last or self.seen.get(event.id) == event
                self.seen[event.id] = event
                missing.discard(event.id)
                after = event.id
        assert not missing, "events that were shown are gone"

    def drain(self) -> None:
        """Without any help all jobs come to their end once somebody works."""
        deadline = monotonic() + DRAIN_S
        with self.process.client() as client:
            open_jobs = {job.job_id for job in client.jobs() if not job.state.terminal}
            while open_jobs:
                assert monotonic() < deadline, f"these never end: {open_jobs}"
                lease = client.claim(ClaimRequest(node_id="last", wait_s=1.0))
                if lease is None:
                    open_jobs = {name for name in open_jobs if not client.job(name).state.terminal}
                    continue
                record = client.put_artifact(f"{lease.output_prefix}/m", b"last")
                output = OutputFile(path="m", key=record.object_key, sha256=record.sha256)
                request = CompleteRequest(outputs=[output], metrics={"lease": lease.lease_id})
                held = Held(lease, complete=request)
                held.fate.ack(held.fate.send(COMPLETED))
                self.book.leases[lease.lease_id] = held
                assert client.complete(lease.lease_id, request).accepted

    def audit(self) -> None:
        """Compare everything that was ever said with everything that is shown."""
        with self.process.client() as client:
            everything = [*self.book.leases.values(), *self.book.jobs.values()]
            self.book.touched = dict.fromkeys(everything)
            self._check_events(client, 0)
            self.check(client, most=len(self.book.touched))
            events = [self.seen[number] for number in sorted(self.seen)]
            check_leases_in(events, self.book)
            check_jobs_in(events, self.book)
            check_deadlines_in(events, self.book)
            for job in client.jobs():
                self._check_results(client, job.job_id, job.state)
        log = self.process.log.read_text() + self.process.errors.read_text()
        assert '"status": 500' not in log
        assert "Traceback" not in log
        check_bytes(self.root, self.root / "copy")

    def _check_results(self, client: CoordinatorClient, job_id: str, state: JobState) -> None:
        """Exactly the outputs that the winners named belong to results, one set a task."""
        tasks = client.tasks(job_id)
        shown = {(each.task_id, each.object_key, each.sha256) for each in client.artifacts(job_id)}
        named = {(task.task_id, o.key, o.sha256) for task in tasks for o in task.outputs}
        assert shown == named
        for task in tasks:
            assert state is not JobState.SUCCEEDED or task.outputs
            if task.outputs:
                complete = self.book.leases[str(task.lease_id)].complete
                assert complete is not None
                assert task.outputs == complete.outputs


def raise_from(playing: list[Future[None]]) -> None:
    for played in playing:
        if played.done():
            played.result()


def check_leases_in(events: list[Event], book: Book) -> None:
    """One accepted result a task, by the newest holder; a lease ends before the next begins."""
    newest: dict[str, str] = {}
    ended: set[str] = set()
    accepted: set[str] = set()
    unknown: Counter[str] = Counter()
    for event in events:
        task, lease = str(event.task_id), str(event.lease_id)
        if event.type is EventType.LEASE_CLAIMED:
            assert task not in accepted
            assert newest.get(task) is None or newest[task] in ended, "two live leases of a task"
            newest[task] = lease
            if lease not in book.leases:
                unknown[str(event.data["node_id"])] += 1
        elif event.type in {EventType.LEASE_EXPIRED, EventType.TASK_ATTEMPT_FAILED}:
            assert newest[task] == lease
            ended.add(lease)
        elif event.type is EventType.LEASE_RENEWED:
            assert newest[task] == lease
            ended.discard(lease)
        elif event.type is EventType.TASK_COMMIT_ACCEPTED:
            assert task not in accepted, "two accepted results of a task"
            assert newest[task] == lease
            assert COMPLETED in book.leases[lease].fate.sent
            accepted.add(task)
        if event.type is EventType.TASK_ATTEMPT_FAILED and lease in book.leases:
            assert FAILED in book.leases[lease].fate.sent
    for node, count in unknown.items():
        assert count <= book.lost_claims.get(node, 0), f"{node} holds what it never asked for"
    claimed = {str(e.lease_id) for e in events if e.type is EventType.LEASE_CLAIMED}
    assert set(book.leases) <= claimed


def check_jobs_in(events: list[Event], book: Book) -> None:
    """A job is there once if its submission was answered, at most once if not; it ends once."""
    names = Counter(
        str(event.data["name"]) for event in events if event.type is EventType.JOB_ACCEPTED
    )
    assert set(names) <= set(book.jobs)
    for key, job in book.jobs.items():
        assert bool(names[key]) in job.exists.may_be(job.exists.known), key
        assert names[key] <= 1
    ends = Counter(str(event.job_id) for event in events if event.type in ENDS)
    assert all(count == 1 for count in ends.values())
    cancelled = {str(e.job_id) for e in events if e.type is EventType.JOB_CANCELLED}
    assert cancelled <= {str(job.job_id) for job in book.jobs.values() if job.cancelled.sent[-1]}


def check_deadlines_in(events: list[Event], book: Book) -> None:
    """No lease lapses before its full time since it was asked for, renewed, or a start.

    It counts from the moment of the call; the event of a start is stamped a little later.
    """
    lease_ns = round(LEASE_S * NS)
    started_ns = 0
    for event in events:
        if event.type is EventType.COORDINATOR_STARTED:
            started_ns = event.mono_ns - STAMP_NS
        elif event.type is EventType.LEASE_EXPIRED and str(event.lease_id) in book.leases:
            held = book.leases[str(event.lease_id)]
            beats = [sent for sent, heard in held.beats if heard < event.mono_ns]
            assert event.mono_ns >= max([started_ns, *beats]) + lease_ns, held.lease.lease_id


def check_bytes(root: Path, copy: Path) -> None:
    """Case 123: every row's blob exists and verifies, also at the moment of death."""
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir()
    for name in ("ledger.sqlite3", "ledger.sqlite3-wal"):
        if (root / "ledger" / name).exists():
            shutil.copy(root / "ledger" / name, copy / name)
    with closing(sqlite3.connect(copy / "ledger.sqlite3")) as db:
        assert db.execute("PRAGMA quick_check").fetchall() == [("ok",)]
        rows = db.execute("SELECT DISTINCT sha256, size_bytes FROM objects").fetchall()
    for digest, size_bytes in rows:
        data = (root / "artifacts" / "sha256" / digest[:2] / digest).read_bytes()
        assert (hashlib.sha256(data).hexdigest(), len(data)) == (digest, size_bytes)


def told(storm: Storm, begin: float) -> str:
    book = storm.book
    return (
        f"{monotonic() - begin:.0f} s, {storm.kills} kills ({storm.kills_in_flight} with requests "
        f"in flight, {storm.kills_at_start} of a start), {book.answered} answers, {book.maybe} "
        f"maybe, {len(book.jobs)} jobs, {len(book.leases)} leases, {len(storm.seen)} events"
    )


def weather(storm: Storm, *, seconds: float, kills: int = 0, answers: int = 0) -> str:
    begin = monotonic()
    with storm.process:
        storm.run(seconds=seconds, kills=kills, answers=answers)
        storm.drain()
        storm.audit()
    return told(storm, begin)


def test_123_what_was_answered_outlives_every_kill(tmp_path: Path) -> None:
    """Eight clients, random calls; each kill leaves every answer true and every maybe decided."""
    storm = Storm(tmp_path, seed=123)
    words = weather(storm, seconds=10)
    assert storm.kills >= 3, words
    assert storm.kills_in_flight >= storm.kills / 3, words
    assert storm.book.maybe > 0, words


@pytest.mark.bench_stress
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("seed", [1])
def test_123_what_was_answered_outlives_two_hundred_kills(
    tmp_path: Path, seed: int, record_property: Callable[[str, object], None]
) -> None:
    storm = Storm(tmp_path, seed)
    words = weather(storm, seconds=0, kills=200, answers=10_000)
    record_property("figures", words)
    sys.stderr.write(f"{words}\n")
    assert storm.kills_in_flight >= 150, words
