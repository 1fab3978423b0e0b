"""Deletion, backup and restore, and what a kill leaves behind, on real coordinators."""

import hashlib
import http.client
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread
from time import monotonic

import pytest

from flashruntime.client import CoordinatorClient
from flashruntime.errors import FlashError, NotFound
from flashruntime.protocol.jobs import JobSpec, JobState
from flashruntime.protocol.tasks import ClaimRequest, CompleteRequest, Lease
from flashruntime.testing import CoordinatorProcess

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[2]
HOUR_S = 3600.0


def spec(tasks: int = 1) -> JobSpec:
    parameters = {"command": ["true", "{n}"], "task_params": [{"n": n} for n in range(tasks)]}
    return JobSpec.model_validate(
        {
            "apiVersion": "flashml.dev/v1alpha1",
            "kind": "Job",
            "metadata": {"name": "j"},
            "spec": {"workload": {"type": "command", "parameters": parameters}},
        }
    )


def finish(client: CoordinatorClient, job_id: str, data: bytes) -> Lease:
    lease = client.claim(ClaimRequest(node_id="n1", job_id=job_id))
    assert lease is not None
    digest = client.put_artifact(lease.commit_key, data).sha256
    assert client.complete(lease.lease_id, CompleteRequest(output_sha256=digest)).accepted
    return lease


def delete(process: CoordinatorProcess, job_id: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", process.port, timeout=10)
    connection.request("DELETE", f"/v1alpha1/jobs/{job_id}")
    status = connection.getresponse().status
    connection.close()
    return status


def blob(root: Path, data: bytes) -> Path:
    sha256 = hashlib.sha256(data).hexdigest()
    return root / "artifacts" / "sha256" / sha256[:2] / sha256


def until(condition: Callable[[], bool], client: CoordinatorClient) -> None:
    """Ask the coordinator something until it is so."""
    deadline = monotonic() + 20
    while not condition():
        assert monotonic() < deadline
        client.healthy()


def backup(root: Path, dest: Path, *more: str) -> subprocess.CompletedProcess[str]:
    env = os.environ | {
        "FLASHML_LEDGER_DIR": str(root / "ledger"),
        "FLASHML_ARTIFACT_DIR": str(root / "artifacts"),
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-m", "flashruntime", "backup", str(dest), *more]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)


def test_a_deleted_job_is_gone_at_once_and_its_bytes_soon(tmp_path: Path) -> None:
    data, kept = os.urandom(100_000), os.urandom(1_000)
    with CoordinatorProcess(tmp_path) as process, process.client() as client:
        job, other = client.submit(spec(300)), client.submit(spec())
        lease = finish(client, job.job_id, data)
        finish(client, other.job_id, kept)
        client.append_log(client_lease(client, job.job_id).lease_id, 0, b"text")
        assert delete(process, job.job_id) == 409
        client.cancel(job.job_id)
        assert [delete(process, job.job_id) for _ in range(2)] == [204, 204]
        assert delete(process, "job-000000000000") == 404
        with pytest.raises(NotFound):
            client.job(job.job_id)
        with pytest.raises(FlashError, match="404"):
            client.put_artifact(lease.commit_key, b"late")
        until(lambda: not blob(tmp_path, data).exists(), client)
        until(lambda: not (tmp_path / "ledger" / "logs" / job.job_id).exists(), client)
        until(lambda: '"job_deleted"' in process.log.read_text(), client)
        assert client.job(other.job_id).state is JobState.SUCCEEDED
        assert blob(tmp_path, kept).exists()
        found = client.events(None, limit=10_000).items
        assert {event.job_id for event in found} == {None, other.job_id}


def client_lease(client: CoordinatorClient, job_id: str) -> Lease:
    lease = client.claim(ClaimRequest(node_id="n1", job_id=job_id))
    assert lease is not None
    return lease


def test_a_deletion_that_a_kill_cut_short_goes_on(tmp_path: Path) -> None:
    data = os.urandom(1_000)
    with CoordinatorProcess(tmp_path) as process, process.client() as client:
        job = client.submit(spec(2_000))
        finish(client, job.job_id, data)
        client.cancel(job.job_id)
        assert delete(process, job.job_id) == 204
        process.kill()
        process.start()
        assert delete(process, job.job_id) == 204
        until(lambda: not blob(tmp_path, data).exists(), client)
        until(lambda: '"job_deleted"' in process.log.read_text(), client)


def test_a_backup_of_a_busy_coordinator_starts_and_goes_on(tmp_path: Path) -> None:
    source, dest = tmp_path / "source", tmp_path / "copy"
    source.mkdir()
    stop, acknowledged = Event(), list[tuple[str, bytes]]()

    with CoordinatorProcess(source) as process, process.client() as client:

        def work() -> None:
            with process.client() as mine:
                while not stop.is_set():
                    job, data = mine.submit(spec()), os.urandom(2_000)
                    finish(mine, job.job_id, data)
                    acknowledged.append((job.job_id, data))

        worker = Thread(target=work)
        worker.start()
        until(lambda: len(acknowledged) > 3, client)
        live = client.submit(spec(2))
        held = client_lease(client, live.job_id)
        before = len(acknowledged)
        done = backup(source, dest, "--verify")
        after = len(acknowledged)
        assert client.healthy()
        stop.set()
        worker.join()
        assert (done.returncode, done.stderr) == (0, "")
        assert after > before
        assert client.submit(spec()).state is JobState.PENDING
    with CoordinatorProcess(dest) as restored, restored.client() as client:
        for job_id, data in acknowledged[:before]:
            assert client.job(job_id).state is JobState.SUCCEEDED
            (record,) = client.artifacts(job_id)
            client.get_artifact(record.object_key, tmp_path / "out", record.sha256)
            assert (tmp_path / "out").read_bytes() == data
        sha256 = client.put_artifact(held.commit_key, b"late").sha256
        assert client.complete(held.lease_id, CompleteRequest(output_sha256=sha256)).accepted
        finish(client, live.job_id, b"second")
        assert client.job(live.job_id).state is JobState.SUCCEEDED
        job_id, data = acknowledged[0]
        assert delete(restored, job_id) == 204
        until(lambda: not blob(dest, data).exists(), client)
    assert blob(source, data).read_bytes() == data


def test_123_what_a_kill_leaves_is_removed_and_what_has_a_row_stays(tmp_path: Path) -> None:
    """A part of an upload, and whole bytes whose row was never written."""
    orphan, kept = os.urandom(100_000), os.urandom(100_000)
    with CoordinatorProcess(tmp_path) as process, process.client() as client:
        client.put_artifact("kept", kept)
        client.put_artifact("orphan", orphan)
        client.put_artifact("orphan", b"replaced")
        process.kill()
        (tmp_path / "artifacts" / "tmp" / "half").write_bytes(b"x" * 1_000)
        for data in (orphan, kept):
            status = blob(tmp_path, data).stat()
            os.utime(blob(tmp_path, data), (status.st_atime, status.st_mtime - 2 * HOUR_S))
        process.start()
        assert list((tmp_path / "artifacts" / "tmp").iterdir()) == []
        until(lambda: not blob(tmp_path, orphan).exists(), client)
        client.get_artifact("kept", tmp_path / "out")
        assert (tmp_path / "out").read_bytes() == kept


def test_the_scrub_finds_rot_of_a_running_coordinator(tmp_path: Path) -> None:
    data = os.urandom(50_000)
    with CoordinatorProcess(tmp_path) as process, process.client() as client:
        job = client.submit(spec())
        lease = finish(client, job.job_id, data)
        rotten = bytearray(data)
        rotten[100] ^= 4
        blob(tmp_path, data).write_bytes(rotten)
        until(lambda: '"artifact_corrupt"' in process.log.read_text(), client)
        found = client.events(job.job_id, limit=1_000).items
        (event,) = [event for event in found if event.type == "ARTIFACT_CORRUPT"]
        assert (event.task_id, event.data["key"]) == (lease.task_id, lease.commit_key)
        (record,) = client.artifacts(job.job_id)
        assert "hash to" in str(record.damaged)
        client.put_artifact(lease.commit_key, data)
        assert client.artifacts(job.job_id)[0].damaged is None
