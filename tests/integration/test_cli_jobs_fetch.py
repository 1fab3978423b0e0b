"""`jobs` and `fetch` against a real coordinator, with a worker that the test plays."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from flashruntime.cli import main
from flashruntime.client import CoordinatorClient
from flashruntime.protocol.jobs import JobSpec
from flashruntime.protocol.tasks import ClaimRequest, CompleteRequest, OutputFile
from flashruntime.testing import CoordinatorProcess

pytestmark = pytest.mark.integration


@pytest.fixture
def coordinator(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[CoordinatorProcess]:
    with CoordinatorProcess(tmp_path_factory.mktemp("fetch")) as process:
        monkeypatch.setenv("FLASHML_COORDINATOR_URL", process.url)
        yield process


@pytest.fixture
def client(coordinator: CoordinatorProcess) -> Iterator[CoordinatorClient]:
    with coordinator.client() as client:
        yield client


def submitted(client: CoordinatorClient, name: str, tasks: int) -> str:
    parameters = {"command": ["echo", "{n}"], "task_params": [{"n": n} for n in range(tasks)]}
    fields = {
        "apiVersion": "flashml.dev/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"workload": {"type": "command", "parameters": parameters}},
    }
    return client.submit(JobSpec.model_validate(fields)).job_id


def completed(client: CoordinatorClient, job_id: str, *paths: str) -> None:
    """Run the next task of a job: each output holds its own path and the task's index."""
    lease = client.claim(ClaimRequest(node_id="n", job_id=job_id))
    assert lease is not None
    outputs = []
    for path in paths:
        key = f"{lease.output_prefix}/{path}"
        stored = client.put_artifact(key, f"{path} of {lease.task_index}".encode())
        outputs.append(OutputFile(path=path, key=key, sha256=stored.sha256))
    assert client.complete(lease.lease_id, CompleteRequest(outputs=outputs)).accepted


def files_of(directory: Path) -> dict[str, str]:
    found = (path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): path.read_text() for path in found}


def test_jobs_are_listed_newest_first(
    client: CoordinatorClient, capsys: pytest.CaptureFixture[str]
) -> None:
    ids = [submitted(client, f"job {n}", tasks=n) for n in (1, 2, 3)]
    completed(client, ids[2])
    assert main(["jobs"]) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.split() == ["JOB", "NAME", "STATE", "TASKS", "AGE"]
    assert [row.split()[0] for row in rows] == ids[::-1]
    assert rows[0].split()[1:-1] == ["job", "3", "RUNNING", "1/3"]
    assert main(["jobs", "--limit", "2"]) == 0
    assert capsys.readouterr().out.splitlines()[3] == "... and older ones: --limit 4"
    assert main(["jobs", "--json"]) == 0
    assert [job["job_id"] for job in json.loads(capsys.readouterr().out)] == ids[::-1]


def test_the_outputs_of_every_task_are_fetched_once(
    client: CoordinatorClient, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job_id, place = submitted(client, "many", tasks=2), tmp_path / "new" / "out"
    assert main(["fetch", job_id, str(place)]) == 1
    assert "no accepted outputs" in capsys.readouterr().err
    assert not place.exists()
    completed(client, job_id, "model/best.bin", "metrics.json")
    assert main(["fetch", job_id, str(place)]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("2 files, ")
    assert "not of every task" in shown.err
    completed(client, job_id, "metrics.json")
    assert main(["fetch", job_id, str(place)]) == 0
    shown = capsys.readouterr()
    assert shown.out == f"1 file, 17 B, in {place}; 2 were there already\n"
    assert shown.err == ""
    assert files_of(place) == {
        "0/model/best.bin": "model/best.bin of 0",
        "0/metrics.json": "metrics.json of 0",
        "1/metrics.json": "metrics.json of 1",
    }


def test_a_file_with_other_content_is_kept_and_nothing_is_fetched(
    client: CoordinatorClient, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job_id = submitted(client, "one", tasks=1)
    completed(client, job_id, "a", "b")
    (tmp_path / "0").mkdir()
    (tmp_path / "0/b").write_text("mine")
    assert main(["fetch", job_id, str(tmp_path)]) == 1
    assert f"{tmp_path}/0/b is there with other content" in capsys.readouterr().err
    assert files_of(tmp_path) == {"0/b": "mine"}


def test_an_output_whose_bytes_changed_in_the_store_is_not_kept(
    coordinator: CoordinatorProcess,
    client: CoordinatorClient,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    job_id = submitted(client, "rotten", tasks=1)
    completed(client, job_id, "a")
    for blob in (coordinator.root / "artifacts").rglob("*"):
        if blob.is_file() and blob.read_bytes() == b"a of 0":
            blob.chmod(0o600)
            blob.write_bytes(b"A of 0")
    assert main(["fetch", job_id, str(tmp_path)]) == 1
    assert files_of(tmp_path) == {}
    assert "hash to" in capsys.readouterr().err


def test_a_local_run_needs_no_fetching(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.json").touch()
    assert main(["fetch", str(tmp_path), str(tmp_path / "out")]) == 2
    assert "there already" in capsys.readouterr().err


def test_only_jobs_that_have_ended_are_deleted(
    client: CoordinatorClient, capsys: pytest.CaptureFixture[str]
) -> None:
    """An open job is refused with a remedy; deleting again changes nothing; unknown ones fail."""
    ended, still_open = submitted(client, "ended", tasks=1), submitted(client, "open", tasks=1)
    completed(client, ended, "metrics.json")
    assert main(["delete", ended, still_open]) == 1
    told = capsys.readouterr()
    assert told.out == f"{ended}  DELETED\n"
    assert still_open in told.err
    assert "cancel" in told.err
    assert main(["delete", ended]) == 0
    assert main(["delete", "job-unknown"]) == 1
    assert [job.job_id for job in client.jobs()] == [still_open]
