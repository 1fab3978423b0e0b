"""The life of a job over real HTTP, with a worker that the test plays."""

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic
from typing import Any
from uuid import uuid4

import pytest

from flashruntime.client import CoordinatorClient
from flashruntime.errors import InvalidInput, NotFound, Superseded
from flashruntime.protocol.events import EventType
from flashruntime.protocol.failures import EndedBy, Evidence
from flashruntime.protocol.jobs import JobSpec, JobState
from flashruntime.protocol.nodes import NodeHeartbeat, NodeRegistration
from flashruntime.protocol.tasks import (
    ClaimRequest,
    CompleteRequest,
    FailRequest,
    HeartbeatRequest,
    Lease,
    OutputFile,
    TaskState,
)
from flashruntime.testing import CoordinatorProcess

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CoordinatorProcess]:
    with CoordinatorProcess(tmp_path_factory.mktemp("life")) as process:
        yield process


@pytest.fixture
def client(coordinator: CoordinatorProcess) -> Iterator[CoordinatorClient]:
    with coordinator.client() as client:
        yield client


def spec(*, attempts: int = 3, **parameters: Any) -> JobSpec:
    workload = {"type": "command", "parameters": {"command": ["true"], **parameters}}
    return JobSpec.model_validate(
        {
            "apiVersion": "flashml.dev/v1alpha1",
            "kind": "Job",
            "metadata": {"name": "a job"},
            "spec": {"workload": workload, "retryPolicy": {"maxTaskAttempts": attempts}},
        }
    )


def claimed(client: CoordinatorClient, job_id: str, node: str = "n1", wait_s: float = 5) -> Lease:
    lease = client.claim(ClaimRequest(node_id=node, job_id=job_id, wait_s=wait_s))
    assert lease is not None
    return lease


def uploaded(client: CoordinatorClient, lease: Lease, path: str, data: bytes) -> OutputFile:
    record = client.put_artifact(f"{lease.output_prefix}/{path}", data)
    return OutputFile(path=path, key=record.object_key, sha256=record.sha256)


def kinds(client: CoordinatorClient, job_id: str) -> list[EventType]:
    return [event.type for event in client.events(job_id).items]


def test_a_job_goes_from_submission_to_its_artifacts(
    client: CoordinatorClient, tmp_path: Path
) -> None:
    source = client.put_artifact("inputs/train.py", b"print(1)")
    inputs = [{"path": "train.py", "key": "inputs/train.py", "sha256": source.sha256}]
    job = client.submit(
        spec(
            command=["python3", "train.py", "--lr={lr}"],
            inputs=inputs,
            task_params=[{"lr": 0.1}, {"lr": 0.2}],
            outputs={"required": ["model.bin"]},
        )
    )
    assert job.state is JobState.PENDING
    node = client.register(NodeRegistration(node_id="n1", hostname="h"))
    assert client.node_heartbeat("n1", NodeHeartbeat(session_id=node.session_id)).idle_s < 5
    assert [known.node_id for known in client.nodes()] == ["n1"]
    for number, rate in enumerate(["0.1", "0.2"]):
        lease = claimed(client, job.job_id)
        assert lease.payload.command == ["python3", "train.py", f"--lr={rate}"]
        client.get_artifact(lease.payload.inputs[0].key, tmp_path / "in", source.sha256)
        client.heartbeat(lease.lease_id, HeartbeatRequest(step=3, metrics={"loss": 0.5}))
        assert client.append_log(lease.lease_id, 0, f"training {number}\n".encode()) == 11
        output = uploaded(client, lease, "model.bin", b"weights %d" % number)
        answer = client.complete(
            lease.lease_id, CompleteRequest(outputs=[output], metrics={"acc": number})
        )
        assert answer.accepted
    assert client.job(job.job_id).state is JobState.SUCCEEDED
    tasks = client.tasks(job.job_id)
    assert [(task.state, task.metrics, task.step) for task in tasks] == [
        (TaskState.COMPLETED, {"acc": 0}, 3),
        (TaskState.COMPLETED, {"acc": 1}, 3),
    ]
    artifacts = client.artifacts(job.job_id)
    assert [(artifact.path, artifact.accepted) for artifact in artifacts] == [
        ("model.bin", True),
        ("model.bin", True),
    ]
    client.get_artifact(artifacts[1].object_key, tmp_path / "model", artifacts[1].sha256)
    assert (tmp_path / "model").read_bytes() == b"weights 1"
    assert "training 0\n" in client.logs(job.job_id)
    assert client.logs(job.job_id, task=1) == "training 1\n"
    assert kinds(client, job.job_id)[-1] is EventType.JOB_SUCCEEDED
    assert client.jobs()[0].job_id == job.job_id


def test_events_are_ordered_and_resumable_from_an_id(client: CoordinatorClient) -> None:
    job = client.submit(spec(task_params=None))
    every = client.events(job.job_id).items
    first = client.events(job.job_id, limit=1)
    rest = client.events(job.job_id, after=first.last_id)
    assert [*first.items, *rest.items] == every
    client.cancel(job.job_id)


def test_109_a_zombie_changes_nothing_once_another_worker_has_claimed(
    client: CoordinatorClient,
) -> None:
    job = client.submit(spec(lease_seconds=0.5, outputs={"required": ["m"]}))
    zombie = claimed(client, job.job_id, "n1")
    output = uploaded(client, zombie, "m", b"old")
    successor = claimed(client, job.job_id, "n2")
    assert successor.attempt_number == zombie.attempt_number + 1
    calls = [
        lambda: client.heartbeat(zombie.lease_id),
        lambda: client.append_log(zombie.lease_id, 0, b"late"),
        lambda: client.put_artifact(output.key, b"other"),
        lambda: client.fail(zombie.lease_id, FailRequest(reason="late")),
    ]
    for call in calls:
        with pytest.raises(Superseded):
            call()
    assert not client.complete(zombie.lease_id, CompleteRequest(outputs=[output])).accepted
    new = uploaded(client, successor, "m", b"new")
    assert client.complete(successor.lease_id, CompleteRequest(outputs=[new])).accepted
    assert [artifact.sha256 for artifact in client.artifacts(job.job_id)] == [new.sha256]
    assert client.complete(successor.lease_id, CompleteRequest(outputs=[new])).accepted
    seen = kinds(client, job.job_id)
    assert seen.count(EventType.TASK_COMMIT_ACCEPTED) == 1
    assert seen.count(EventType.TASK_COMMIT_REJECTED) == 1
    refused = {
        event.data["call"]
        for event in client.events(job.job_id).items
        if event.type is EventType.LEASE_REFUSED
    }
    assert refused == {"heartbeat", "logs", "artifact", "fail"}


def test_a_failure_is_decided_by_the_policy_and_its_answer_repeated(
    client: CoordinatorClient,
) -> None:
    job = client.submit(spec(attempts=1))
    lease = claimed(client, job.job_id)
    evidence = Evidence(ended_by=EndedBy.EXIT, exit_code=1, error_type="ValueError", message="no")
    request = FailRequest(reason="exit 1", evidence=evidence)
    first = client.fail(lease.lease_id, request)
    assert first.task_state is TaskState.FAILED
    assert client.fail(lease.lease_id, request) == first
    assert client.job(job.job_id).state is JobState.FAILED
    seen = kinds(client, job.job_id)
    assert EventType.FAILURE_CLASSIFIED in seen
    assert EventType.RECOVERY_ACTION_SELECTED in seen


def test_a_cancelled_job_fences_its_holders(client: CoordinatorClient) -> None:
    job = client.submit(spec())
    lease = claimed(client, job.job_id)
    assert client.cancel(job.job_id).state is JobState.CANCELLED
    assert client.cancel(job.job_id).state is JobState.CANCELLED
    with pytest.raises(Superseded):
        client.heartbeat(lease.lease_id)


def test_a_waiting_claim_is_answered_as_soon_as_a_job_arrives(
    coordinator: CoordinatorProcess, client: CoordinatorClient
) -> None:
    with ThreadPoolExecutor(1) as threads, coordinator.client() as waiting:
        answer = threads.submit(waiting.claim, ClaimRequest(node_id="w", wait_s=20))
        while not any(node.node_id == "n1" for node in client.nodes()):
            client.register(NodeRegistration(node_id="n1"))
        assert not answer.done()
        began = monotonic()
        job = client.submit(spec())
        lease = answer.result(5)
    assert lease is not None
    assert lease.job_id == job.job_id
    assert monotonic() - began < 1
    client.cancel(job.job_id)


def test_no_lease_is_given_to_a_claim_whose_connection_was_closed(
    coordinator: CoordinatorProcess, client: CoordinatorClient
) -> None:
    import http.client

    gone = http.client.HTTPConnection("127.0.0.1", coordinator.port)
    body = json.dumps({"node_id": "gone", "wait_s": 30})
    gone.request("POST", "/v1alpha1/leases/claim", body, {"Content-Type": "application/json"})
    assert client.claim(ClaimRequest(node_id="n1", wait_s=0.1)) is None
    gone.close()
    assert client.claim(ClaimRequest(node_id="n1", wait_s=0.1)) is None
    job = client.submit(spec())
    assert claimed(client, job.job_id, "n2").attempt_number == 1
    client.cancel(job.job_id)


def test_129_each_registration_is_a_session_and_the_older_one_is_fenced(
    client: CoordinatorClient,
) -> None:
    with ThreadPoolExecutor(2) as threads:
        registration = NodeRegistration(node_id="twin")
        first, second = threads.map(client.register, [registration] * 2)
    assert first.session_id != second.session_id
    older, newer = first.session_id, second.session_id
    try:
        client.node_heartbeat("twin", NodeHeartbeat(session_id=newer))
    except Superseded:
        older, newer = newer, older
    client.node_heartbeat("twin", NodeHeartbeat(session_id=newer))
    with pytest.raises(Superseded):
        client.node_heartbeat("twin", NodeHeartbeat(session_id=older))
    with pytest.raises(Superseded):
        client.claim(ClaimRequest(node_id="twin", session_id=older))


def test_103_one_idempotency_key_gives_one_job(client: CoordinatorClient) -> None:
    key = uuid4().hex
    with ThreadPoolExecutor(4) as threads:
        jobs = list(threads.map(lambda _: client.submit(spec(), key), range(4)))
    assert len({job.job_id for job in jobs}) == 1
    from flashruntime.errors import Conflict

    with pytest.raises(Conflict, match="key"):
        client.submit(spec(attempts=2), key)
    client.cancel(jobs[0].job_id)


def test_a_job_whose_input_is_missing_or_different_is_refused_by_its_key(
    client: CoordinatorClient,
) -> None:
    client.put_artifact("inputs/present", b"x")
    for key in ("inputs/absent", "inputs/present"):
        inputs = [{"path": "x", "key": key, "sha256": "0" * 64}]
        with pytest.raises(InvalidInput, match=key):
            client.submit(spec(inputs=inputs))


def test_unknown_ids_are_not_found(client: CoordinatorClient) -> None:
    for call in (client.job, client.tasks, client.events, client.logs, client.artifacts):
        with pytest.raises(NotFound):
            call("job-none")
    with pytest.raises(NotFound):
        client.heartbeat("lease-none")
    with pytest.raises(NotFound):
        client.node_heartbeat("nobody")


def test_log_lines_are_json_with_rising_numbers_and_no_stack_trace(
    coordinator: CoordinatorProcess,
) -> None:
    lines = [json.loads(line) for line in coordinator.log.read_text().splitlines()]
    assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1))
    assert {"coordinator_ready", "request"} <= {line["event"] for line in lines}
    assert not [line for line in lines if "trace" in line]


def test_a_restart_keeps_everything_and_gives_leases_their_full_time(tmp_path: Path) -> None:
    with CoordinatorProcess(tmp_path) as process, process.client() as client:
        job = client.submit(spec(lease_seconds=2.0, task_params=None))
        lease = claimed(client, job.job_id)
        client.append_log(lease.lease_id, 0, b"before\n")
        output = uploaded(client, lease, "m", b"weights")
        before = client.tasks(job.job_id)
        process.kill()
        process.start()
        assert client.tasks(job.job_id) == before
        assert client.claim(ClaimRequest(node_id="n2", wait_s=1.0)) is None
        client.heartbeat(lease.lease_id)
        assert client.append_log(lease.lease_id, 7, b"after\n") == 13
        assert client.complete(lease.lease_id, CompleteRequest(outputs=[output])).accepted
        assert client.logs(job.job_id) == "before\nafter\n"
        assert client.job(job.job_id).state is JobState.SUCCEEDED
        seen = [event.type for event in client.events(None).items]
        assert seen.count(EventType.COORDINATOR_STARTED) == 2
        assert EventType.LEASE_EXPIRED not in seen


def test_a_second_coordinator_on_the_same_ledger_refuses_in_one_line(tmp_path: Path) -> None:
    with CoordinatorProcess(tmp_path) as process:
        process.errors.write_text("")
        second = process.launch()
        assert second.wait(20) == 3
        lines = process.log.read_text() + process.errors.read_text()
        assert "another coordinator" in lines
        assert "Traceback" not in lines
        assert process.client().healthy()


@pytest.mark.parametrize("name", ["FLASHML_LEDGER_DIR", "FLASHML_ARTIFACT_DIR"])
def test_a_directory_that_cannot_be_used_stops_the_start_in_one_line(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / "file").write_text("")
    process = CoordinatorProcess(tmp_path, {name: str(tmp_path / "file" / "below")})
    assert process.launch().wait(20) == 3
    lines = process.log.read_text() + process.errors.read_text()
    assert name in lines
    assert "uid" in lines
    assert "Traceback" not in lines


def test_a_wrong_setting_stops_the_start_in_one_line(tmp_path: Path) -> None:
    process = CoordinatorProcess(tmp_path, {"FLASHML_MAX_ARTIFACT_BYTES": "much"})
    assert process.launch().wait(20) == 3
    lines = process.log.read_text() + process.errors.read_text()
    assert "FLASHML_MAX_ARTIFACT_BYTES='much'" in lines
    assert "Traceback" not in lines


def test_sigterm_ends_it_within_two_seconds_while_claims_wait(tmp_path: Path) -> None:
    process = CoordinatorProcess(tmp_path)
    process.start()
    with process.client() as client, ThreadPoolExecutor(3) as threads:
        waiting = [
            threads.submit(client.claim, ClaimRequest(node_id=f"n{number}", wait_s=30))
            for number in range(3)
        ]
        assert client.claim(ClaimRequest(node_id="last", wait_s=0.2)) is None
        assert process.stop() < 2
        assert [answer.result(5) for answer in waiting] == [None] * 3
    assert "Traceback" not in process.errors.read_text() + process.log.read_text()


def test_sigterm_ends_it_within_two_seconds_while_an_upload_stalls(tmp_path: Path) -> None:
    with CoordinatorProcess(tmp_path) as process:
        with socket.create_connection(("127.0.0.1", process.port)) as stalled:
            head = (
                "PUT /v1alpha1/artifacts/k HTTP/1.1\r\nHost: localhost\r\n"
                "Content-Length: 3000000\r\n\r\n"
            )
            stalled.sendall(head.encode() + b"a" * 2_000_000)
            temp = tmp_path / "artifacts" / "tmp"
            with process.client() as client:
                while not list(temp.iterdir()):
                    client.healthy()
            assert process.stop() < 2
        assert list(temp.iterdir()) == []


def test_a_bare_exit_code_is_answered_with_the_last_line_as_a_hint(
    client: CoordinatorClient,
) -> None:
    job = client.submit(spec(attempts=1))
    lease = claimed(client, job.job_id)
    seen = Evidence(ended_by=EndedBy.EXIT, exit_code=2, log_tail="usage\n--lr is required\n")
    answer = client.fail(lease.lease_id, FailRequest(reason="exit code 2", evidence=seen))
    assert answer.decision.reason.endswith("(not evidence, its last line was: --lr is required)")
    assert "--lr is required" in (client.job(job.job_id).reason or "")
