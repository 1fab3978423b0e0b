"""Reported cases of coordinators, each with real sockets and real processes."""

import re
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from time import monotonic

import pytest

from flashruntime.client import CoordinatorClient
from flashruntime.errors import Conflict, CoordinatorUnreachable
from flashruntime.protocol.events import EventType
from flashruntime.protocol.jobs import JobSpec, JobState
from flashruntime.protocol.tasks import ClaimRequest, Lease
from flashruntime.testing import CoordinatorProcess
from tests.integration.worker_stack import Stack

pytestmark = pytest.mark.integration
BIG_BYTES = 60_000_000
BEATERS = 10


def spec(name: str = "j", tasks: int = 1, lease_s: float = 30.0) -> JobSpec:
    parameters = {
        "command": ["work", "{i}"],
        "task_params": [{"i": number} for number in range(tasks)],
        "lease_seconds": lease_s,
    }
    return JobSpec.model_validate({
        "apiVersion": "flashml.dev/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"workload": {"type": "command", "parameters": parameters}},
    })  # fmt: skip


class CuttingProxy:
    """Passes every request on, and cuts the answers of the first `cuts` connections."""

    def __init__(self, port: int, cuts: int) -> None:
        self._target = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.left = cuts
        self._thread = Thread(target=self._serve, daemon=True)

    @contextmanager
    def running(self) -> Iterator["CuttingProxy"]:
        self._thread.start()
        try:
            yield self
        finally:
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._thread.join()

    def _serve(self) -> None:
        with suppress(OSError), ThreadPoolExecutor(8) as threads:
            while True:
                threads.submit(self._carry, self._listener.accept()[0])

    def _carry(self, client: socket.socket) -> None:
        """One request a connection: the client is told to close by what it does not get."""
        with client, socket.create_connection(self._target) as server:
            server.sendall(whole(client))
            answer = whole(server)
            if self.left > 0:
                self.left -= 1
                return
            client.sendall(answer)


def whole(source: socket.socket) -> bytes:
    """Receive one message, which may come in pieces, up to the length that its head states."""
    message = source.recv(1 << 20)
    while b"\r\n\r\n" not in message and (more := source.recv(1 << 20)):
        message += more
    head = message.partition(b"\r\n\r\n")[0]
    length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0] or 0)
    while len(message) < len(head) + 4 + length and (more := source.recv(1 << 20)):
        message += more
    return message


@pytest.mark.parametrize("cuts", [1, 3])
def test_103_a_submission_whose_answer_is_cut_off_brings_one_job(tmp_path: Path, cuts: int) -> None:
    with CoordinatorProcess(tmp_path) as process, process.client() as direct:
        with CuttingProxy(process.port, cuts).running() as proxy:
            client = CoordinatorClient(f"http://127.0.0.1:{proxy.port}", timeout_s=5)
            with client:
                job = until_answered(client, "key")
                with pytest.raises(Conflict):
                    direct.submit(spec(tasks=2), "key")
        assert proxy.left == 0
        assert [each.job_id for each in direct.jobs()] == [job]
        accepted = [e for e in direct.events(None).items if e.type is EventType.JOB_ACCEPTED]
        assert len(accepted) == 1


def until_answered(client: CoordinatorClient, key: str) -> str:
    for _ in range(5):
        with suppress(CoordinatorUnreachable):
            return client.submit(spec(), key).job_id
    raise AssertionError("never answered")


SLOW_THEN_FAST = """
import json, os, time
from pathlib import Path
marks = Path(os.environ["MARKS"])
count = int(os.environ["FLASHML_RESTART_COUNT"])
part = marks / f"part-{count}"
part.write_text(str(os.getpid()))
part.rename(marks / f"started-{count}")
while count == 0 and not (marks / "go").exists(): time.sleep(0.02)
Path("metrics.json").write_text(json.dumps({"acc": count + 1}))
"""


def test_109_a_worker_that_was_paused_finds_its_task_finished(tmp_path: Path) -> None:
    """Its late result counts for nothing, its process ends, and it works on."""
    (tmp_path / "marks").mkdir()
    with Stack(tmp_path) as stack:
        first = stack.start_worker("first")
        env = {"MARKS": str(tmp_path / "marks")}
        job_id = stack.submit(SLOW_THEN_FAST, env=env, lease_seconds=1.0)
        stack.until((tmp_path / "marks/started-0").exists)
        first.signal(signal.SIGSTOP)
        second = stack.start_worker("second")
        assert stack.ended(job_id).state is JobState.SUCCEEDED
        second.signal(signal.SIGTERM)
        assert second.exit_code() == 0
        (tmp_path / "marks/go").touch()
        first.signal(signal.SIGCONT)
        first.await_line("attempt_discarded")
        (task,) = stack.client.tasks(job_id)
        assert task.metrics == {"acc": 2}
        assert (task.node_id, task.attempts, task.errors, task.losses) == ("second", 2, 0, 1)
        pid = int((tmp_path / "marks/started-0").read_text())
        stack.until(lambda: not Path(f"/proc/{pid}").exists())
        accepted = stack.client.artifacts(job_id)
        assert {each.object_key.split("/")[-2] for each in accepted} == {task.lease_id}
        again = stack.submit("print('more')")
        assert stack.ended(again).state is JobState.SUCCEEDED
        assert stack.client.tasks(again)[0].node_id == "first"


class Beater:
    """A worker that does nothing but beat, and notes how long each answer took."""

    def __init__(self, client: CoordinatorClient, lease: Lease) -> None:
        self._client = client
        self._lease = lease
        self.took_s: list[float] = []

    def beat(self, done: Event) -> None:
        while not done.wait(0.1):
            began_s = monotonic()
            self._client.heartbeat(self._lease.lease_id)
            self.took_s.append(monotonic() - began_s)


def test_121_large_transfers_cost_no_lease_of_other_workers(tmp_path: Path) -> None:
    """Ten workers beat while large objects come and go; health is answered all the time."""
    file = tmp_path / "file"
    with file.open("wb") as out:
        out.truncate(BIG_BYTES)
    done = Event()
    with CoordinatorProcess(tmp_path) as process, process.client() as client:
        job = client.submit(spec(tasks=BEATERS, lease_s=2.0))
        beaters = [Beater(client, claimed(client, f"n{n}")) for n in range(BEATERS)]
        with ThreadPoolExecutor(BEATERS + 2) as threads:
            beating = [threads.submit(beater.beat, done) for beater in beaters]
            try:
                moving = [
                    threads.submit(move, client, file, tmp_path / f"back-{n}", n) for n in range(2)
                ]
                while not all(each.done() for each in moving):
                    assert client.healthy()
                for each in moving:
                    each.result()
            finally:
                done.set()
            for each in beating:
                each.result()
        kinds = {event.type for event in client.events(job.job_id).items}
        assert EventType.LEASE_EXPIRED not in kinds
    took_s = sorted(each for beater in beaters for each in beater.took_s)
    assert took_s[int(0.99 * len(took_s))] < 1.0


def move(client: CoordinatorClient, file: Path, back: Path, number: int) -> None:
    record = client.put_artifact(f"big-{number}", file)
    client.get_artifact(record.object_key, back, record.sha256)
    back.unlink()


def claimed(client: CoordinatorClient, node: str) -> Lease:
    lease = client.claim(ClaimRequest(node_id=node))
    assert lease is not None
    return lease


HOLDS_THE_INTERPRETER = """
import ctypes
ctypes.PyDLL(None).sleep(3)
open("metrics.json", "w").write("{}")
"""


def test_l17_tasks_that_hold_their_interpreter_are_heard_of(tmp_path: Path) -> None:
    """No Python code of the job runs for the length of three leases."""
    with Stack(tmp_path) as stack:
        stack.start_worker("first")
        job_id = stack.submit(HOLDS_THE_INTERPRETER, lease_seconds=1.0)
        assert stack.ended(job_id).state is JobState.SUCCEEDED
        (task,) = stack.client.tasks(job_id)
        assert task.attempts == 1
        assert "LEASE_EXPIRED" not in stack.event_types(job_id)


def test_127_the_composed_stack_keeps_its_ledger_on_a_named_volume() -> None:
    """A directory of the host may be a shared file system, which is no place for a WAL."""
    text = (Path(__file__).parents[2] / "compose.yaml").read_text(encoding="utf-8")
    mounted = re.findall(r"- ([^\s:]+):/var/lib/flashruntime", text)
    declared = re.findall(r"^  (\w+):", text.partition("\nvolumes:\n")[2], re.MULTILINE)
    assert {"ledger", "artifacts"} <= set(mounted) <= set(declared)
