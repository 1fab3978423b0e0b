"""Sessions over real sockets: what closes, how soon it is known, and what it costs."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from flashruntime.client import CoordinatorClient
from flashruntime.errors import NotFound, Superseded
from flashruntime.protocol.events import Event, EventType
from flashruntime.protocol.jobs import JobSpec
from flashruntime.protocol.nodes import NodeRegistration, SessionEnding, SessionNews
from flashruntime.protocol.tasks import ClaimRequest, Lease, TaskState
from flashruntime.session_stream import SessionLines
from flashruntime.testing import CoordinatorProcess

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


def test_a_stream_needs_a_registered_node(client: CoordinatorClient) -> None:
    with pytest.raises(NotFound), client.session("nobody", "session-x"):
        pass
