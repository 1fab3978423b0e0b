"""Sessions over real sockets: what closes, how soon it is known, and what it costs."""

import signal
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import Any, cast

import pytest

from flashruntime.client import CoordinatorClient
from flashruntime.errors import NotFound, Superseded
from flashruntime.protocol.events import Event, EventType
from flashruntime.protocol.jobs import JobSpec, JobState
from flashruntime.protocol.nodes import NodeRegistration, SessionEnding, SessionNews
from flashruntime.protocol.tasks import ClaimRequest, Lease, TaskState
from flashruntime.session_stream import SessionLines
from flashruntime.testing import CoordinatorProcess
from tests.integration.worker_stack import Stack

pytestmark = pytest.mark.integration
SOON_S, LATE_S = 0.5, 20.0
LAPSES = {EventType.LEASE_EXPIRED, EventType.TASK_REQUEUED, EventType.LEASE_RENEWED}


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CoordinatorProcess]:
    with CoordinatorProcess(tmp_path_factory.mktemp("sessions")) as process:
        yield process


@pytest.fixture
def client(coordinator: CoordinatorProcess) -> Iterator[CoordinatorClient]:
    with coordinator.client() as client:
        yield client


def submitted(client: CoordinatorClient, tasks: int = 1) -> str:
    parameters: dict[str, object] = {"command": ["true", "{n}"], "lease_seconds": 60}
    parameters["task_params"] = [{"n": number} for number in range(tasks)]
    body = {"apiVersion": "flashml.dev/v1alpha1", "kind": "Job", "metadata": {"name": "j"}}
    body["spec"] = {"workload": {"type": "command", "parameters": parameters}}
    return client.submit(JobSpec.model_validate(body)).job_id


class Player:
    """A worker that the test plays: registered, with a stream through an address of its own."""

    def __init__(self, url: str, node_id: str) -> None:
        self.node_id = node_id
        self.client = CoordinatorClient(url)
        self.session_id = self.client.register(NodeRegistration(node_id=node_id)).session_id
        self._stack = ExitStack()
        self.lines: Iterator[object] = iter(())

    def open(self) -> SessionLines:
        lines = self._stack.enter_context(self.client.session(self.node_id, self.session_id))
        self.lines = iter(lines)
        first = next(self.lines)
        assert first.news is SessionNews.OPEN  # type: ignore[attr-defined]
        return lines

    def cut(self) -> None:
        """Close the connection of the stream, as the end of a process does."""
        self._stack.close()

    def claim(self, job_id: str, wait_s: float = 0) -> Lease | None:
        request = ClaimRequest(
            node_id=self.node_id, session_id=self.session_id, job_id=job_id, wait_s=wait_s
        )
        return self.client.claim(request)


@contextmanager
def playing(url: str, *names: str) -> Iterator[list[Player]]:
    players = [Player(url, name) for name in names]
    try:
        yield players
    finally:
        for player in players:
            player.cut()
            player.client.close()


def events(client: CoordinatorClient, job_id: str) -> list[Event]:
    return [event for event in client.events(job_id).items if event.type in LAPSES]


def node(client: CoordinatorClient, node_id: str) -> bool:
    return next(each.connected for each in client.nodes() if each.node_id == node_id)


def test_a_closed_stream_makes_the_leases_claimable_at_once(
    coordinator: CoordinatorProcess, client: CoordinatorClient
) -> None:
    """Its tasks go to whoever waits, long before the lease of a minute is over."""
    job_id = submitted(client, 2)
    with playing(coordinator.url, "dead", "next") as (dead, successor):
        dead.open()
        assert node(client, "dead")
        leases = [dead.claim(job_id), dead.claim(job_id)]
        began_s = time.monotonic()
        dead.cut()
        taken = [successor.claim(job_id, LATE_S), successor.claim(job_id, LATE_S)]
        assert time.monotonic() - began_s < SOON_S
        assert not node(client, "dead")
        assert all(lease is not None and lease.attempt_number == 2 for lease in taken)
        for lease in leases:
            assert lease is not None
            with pytest.raises(Superseded):
                dead.client.heartbeat(lease.lease_id)
    reasons = {event.data["reason"] for event in events(client, job_id)}
    assert reasons == {"session_ended"}
    assert [task.errors for task in client.tasks(job_id)] == [0, 0]
    client.cancel(job_id)


def test_a_worker_that_is_back_before_another_claims_keeps_its_leases(
    coordinator: CoordinatorProcess, client: CoordinatorClient
) -> None:
    job_id = submitted(client)
    with playing(coordinator.url, "back") as (player,):
        player.open()
        lease = player.claim(job_id)
        assert lease is not None
        player.cut()
        await_state(client, job_id, TaskState.PENDING)
        player.open()
        assert client.tasks(job_id)[0].state is TaskState.LEASED
        player.client.heartbeat(lease.lease_id)
    task = client.tasks(job_id)[0]
    assert (task.attempts, task.losses, task.lease_id) == (1, 0, lease.lease_id)
    client.cancel(job_id)


def await_state(client: CoordinatorClient, job_id: str, state: TaskState) -> None:
    deadline_s = time.monotonic() + LATE_S
    while client.tasks(job_id)[0].state is not state:
        assert time.monotonic() < deadline_s


def test_129_a_new_registration_ends_the_stream_of_the_older_session(
    coordinator: CoordinatorProcess, client: CoordinatorClient
) -> None:
    with playing(coordinator.url, "twin") as (older,):
        older.open()
        with playing(coordinator.url, "twin") as (newer,):
            last = list(older.lines)[-1]
            assert last.reason is SessionEnding.SUPERSEDED  # type: ignore[attr-defined]
            with pytest.raises(Superseded):
                older.open()
            newer.open()
            assert node(client, "twin")


def test_open_streams_do_not_hold_up_a_coordinator_that_stops(tmp_path: Path) -> None:
    with (
        CoordinatorProcess(tmp_path) as process,
        playing(process.url, "a", "b") as players,
    ):
        for player in players:
            player.open()
        assert process.stop() < 1.0
        last = [list(player.lines)[-1] for player in players]
        assert [line.reason for line in last] == [SessionEnding.STOPPING] * 2  # type: ignore[attr-defined]


def test_a_stream_needs_a_registered_node(client: CoordinatorClient) -> None:
    with pytest.raises(NotFound), client.session("nobody", "session-x"):
        pass


TRAIN = """
import os, time
from pathlib import Path
marks = Path(os.environ["MARKS"])
(marks / ("started-" + os.environ["FLASHML_RESTART_COUNT"])).touch()
while not (marks / "go").exists(): time.sleep(0.02)
"""
HOLD_THE_GIL = """
import ctypes
ctypes.PyDLL(None).usleep(1_500_000)
"""
HANG = """
import os, time
from flashruntime.attempt import Attempt
attempt = Attempt.from_env()
attempt.report(7)
if os.environ["FLASHML_RESTART_COUNT"] == "0":
    def stuck_in_a_collective(): time.sleep(3600)
    stuck_in_a_collective()
"""


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    with Stack(tmp_path) as running:
        (tmp_path / "marks").mkdir()
        yield running


def started(stack: Stack, job_id: str, attempt: int = 0) -> None:
    stack.until((stack.root / f"marks/started-{attempt}").exists)
    assert stack.client.tasks(job_id)[0].attempts == attempt + 1


def train(stack: Stack) -> str:
    return stack.submit(TRAIN, env={"MARKS": str(stack.root / "marks")}, lease_seconds=60)


class Proxy:
    """Forwards connections to a port; `cut` ends all that are open, as its restart would."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._open: list[socket.socket] = []
        Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        ends, self._open = self._open, []
        for end in ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                ours, _ = self._listener.accept()
                theirs = socket.create_connection(("127.0.0.1", self._to))
                self._open += [ours, theirs]
                for ends in ((ours, theirs), (theirs, ours)):
                    Thread(target=_forward, args=ends, daemon=True).start()


def _forward(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65_536):
            sink.sendall(data)
    for end in (source, sink):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def test_a_killed_worker_is_replaced_long_before_its_lease_ends(stack: Stack) -> None:
    """The session stream tells, with a lease of a minute; no error is spent."""
    first = stack.start_worker("first")
    first.await_line("session_open")
    job_id = train(stack)
    started(stack, job_id)
    stack.start_worker("second")
    began_s = time.monotonic()
    first.signal(signal.SIGKILL)
    started(stack, job_id, 1)
    assert time.monotonic() - began_s < SOON_S * 4
    (stack.root / "marks/go").touch()
    assert stack.ended(job_id).state is JobState.SUCCEEDED
    (task,) = stack.client.tasks(job_id)
    assert (task.node_id, task.attempts, task.errors, task.losses) == ("second", 2, 0, 1)


def test_streams_that_a_proxy_cuts_together_come_back_at_no_cost(stack: Stack) -> None:
    proxy = Proxy(stack.port)
    workers = [stack.start_worker(name, FLASHML_COORDINATOR_URL=proxy.url) for name in ("a", "b")]
    for worker in workers:
        worker.await_line("session_open")
    job_id = train(stack)
    started(stack, job_id)
    proxy.cut()
    for worker in workers:
        worker.await_line("session_open")
    (stack.root / "marks/go").touch()
    assert stack.ended(job_id).state is JobState.SUCCEEDED
    assert events(stack.client, job_id) == []
    told = [event.type.value for event in stack.client.events(None).items]
    assert told.count("NODE_SESSION_ENDED") == 2
    proxy.close()


def test_workers_take_their_sessions_up_again_with_a_coordinator_that_was_killed(
    stack: Stack,
) -> None:
    worker = stack.start_worker("only")
    worker.await_line("session_open")
    job_id = train(stack)
    started(stack, job_id)
    stack.coordinator.signal(signal.SIGKILL)
    stack.coordinator.exit_code()
    worker.await_line("session_broken|session_ended")
    stack.start_coordinator()
    worker.await_line("session_open")
    assert stack.client.nodes()[0].connected
    (stack.root / "marks/go").touch()
    assert stack.ended(job_id).state is JobState.SUCCEEDED
    assert events(stack.client, job_id) == []


def test_a_worker_that_leaves_ends_its_session_after_it_handed_back(stack: Stack) -> None:
    worker = stack.start_worker("only", FLASHML_NOTICE_S="3")
    worker.await_line("session_open")
    job_id = train(stack)
    started(stack, job_id)
    worker.signal(signal.SIGTERM)
    assert worker.exit_code() == 0
    assert [event.type for event in events(stack.client, job_id)] == [EventType.TASK_REQUEUED]
    stack.until(lambda: not stack.client.nodes()[0].connected)


def test_l17_heartbeats_go_on_while_the_task_holds_the_gil(stack: Stack) -> None:
    """Its lease of half a second ends three times meanwhile."""
    stack.start_worker("only")
    job_id = stack.submit(HOLD_THE_GIL, lease_seconds=0.5)
    assert stack.ended(job_id).state is JobState.SUCCEEDED
    assert events(stack.client, job_id) == []


def test_an_attempt_without_progress_is_ended_as_hung_and_shows_its_stacks(stack: Stack) -> None:
    stack.start_worker("only")
    job_id = stack.submit(HANG, no_progress_s=2, maxTaskAttempts=2)
    assert stack.ended(job_id).state is JobState.SUCCEEDED
    (failure,) = [
        event
        for event in stack.client.events(job_id).items
        if event.type is EventType.TASK_ATTEMPT_FAILED
    ]
    evidence = cast(dict[str, Any], failure.data["evidence"])
    assert (evidence["ended_by"], evidence["step"]) == ("hung", 7)
    assert "stuck_in_a_collective" in stack.client.logs(job_id, attempt=1)
