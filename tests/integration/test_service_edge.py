"""Odd requests against a real coordinator: every one gets a reasoned answer, never a 500."""

import hashlib
import http.client
import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from flashruntime.client import CoordinatorClient
from flashruntime.errors import Conflict, InvalidInput, NotFound
from flashruntime.protocol.jobs import JobSpec
from flashruntime.protocol.tasks import ClaimRequest, CompleteRequest, Lease, OutputFile
from flashruntime.testing import CoordinatorProcess

pytestmark = pytest.mark.integration
MAX_BYTES = 4_000_000
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CoordinatorProcess]:
    limit = {"FLASHML_MAX_ARTIFACT_BYTES": str(MAX_BYTES)}
    with CoordinatorProcess(tmp_path_factory.mktemp("edge"), limit) as process:
        yield process


@pytest.fixture
def client(coordinator: CoordinatorProcess) -> Iterator[CoordinatorClient]:
    with coordinator.client() as client:
        yield client


class Answer:
    """A response, read whole."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers = dict(response.getheaders())
        self.body = response.read()

    @property
    def json(self) -> Any:
        return json.loads(self.body, parse_constant=pytest.fail)


def ask(
    coordinator: CoordinatorProcess,
    method: str,
    path: str,
    body: bytes | None = None,
    headers: dict[str, str] | None = None,
) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", coordinator.port, timeout=10)
    try:
        connection.request(method, "/v1alpha1" + path, body, headers or {})
        return Answer(connection.getresponse())
    finally:
        connection.close()


def raw(coordinator: CoordinatorProcess, request: bytes, *, half_close: bool = False) -> bytes:
    """Send bytes, close, and return what came back."""
    with socket.create_connection(("127.0.0.1", coordinator.port), timeout=10) as connection:
        connection.sendall(request)
        if half_close:
            connection.shutdown(socket.SHUT_WR)
            received = b""
            while block := connection.recv(65536):
                received += block
            return received
    return b""


def body_of(**changes: Any) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "apiVersion": "flashml.dev/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "j"},
        "spec": {"workload": {"type": "command", "parameters": {"command": ["true"]}}},
    }
    return {**spec, **changes}


def leased(client: CoordinatorClient) -> tuple[str, Lease]:
    job = client.submit(JobSpec.model_validate(body_of()))
    lease = client.claim(ClaimRequest(node_id="n1", job_id=job.job_id))
    assert lease is not None
    return job.job_id, lease


def temp_files(coordinator: CoordinatorProcess) -> list[Path]:
    return list((coordinator.root / "artifacts" / "tmp").iterdir())


@pytest.mark.parametrize(
    "literal",
    [b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-1e400", b"1" * 5000, b'"\\ud800"', b'"\xff"'],
)
def test_075_079_numbers_and_text_that_json_cannot_hold_are_refused(
    coordinator: CoordinatorProcess, client: CoordinatorClient, literal: bytes
) -> None:
    job_id, lease = leased(client)
    body = b'{"metrics": {"loss": ' + literal + b"}}"
    for call in ("heartbeat", "complete"):
        answer = ask(coordinator, "POST", f"/attempts/{lease.lease_id}/{call}", body, JSON)
        assert (answer.status, answer.json["code"]) == (422, "invalid")
    answer = ask(coordinator, "POST", "/nodes/register", b'{"node_id": "x", "capabilities": '
                 + literal + b"}", JSON)  # fmt: skip
    assert answer.status == 422
    answer = ask(coordinator, "GET", f"/jobs/{job_id}/tasks")
    assert (answer.status, answer.json["items"][0]["state"]) == (200, "LEASED")
    assert client.complete(lease.lease_id, CompleteRequest(outputs=[])).accepted


def test_079_large_numbers_booleans_and_repeated_keys_are_kept(
    coordinator: CoordinatorProcess, client: CoordinatorClient
) -> None:
    job_id, lease = leased(client)
    body = (
        b'{"outputs": [], "metrics": {"tokens": 123456789012345678901234567890, "flag": true, '
        b'"dup": 1, "dup": 2, "text": "\\u0000"}}'
    )
    answer = ask(coordinator, "POST", f"/attempts/{lease.lease_id}/complete", body, JSON)
    assert (answer.status, answer.json["accepted"]) == (200, True)
    metrics = ask(coordinator, "GET", f"/jobs/{job_id}/tasks").json["items"][0]["metrics"]
    assert metrics == {
        "tokens": 123456789012345678901234567890,
        "flag": True,
        "dup": 2,
        "text": "\0",
    }


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"null", b"[]", b'"x"', b"[" * 100_000, b"\xef\xbb\xbf{}", b'{"node_id": "x"}x'],
)
def test_a_body_that_is_no_json_object_is_refused_with_a_reason(
    coordinator: CoordinatorProcess, body: bytes
) -> None:
    for path in ("/jobs", "/leases/claim"):
        for headers in (JSON, {"Content-Type": "text/plain"}, {}):
            answer = ask(coordinator, "POST", path, body, headers)
            assert (answer.status, answer.json["code"]) == (422, "invalid")
            assert answer.json["detail"]


@pytest.mark.parametrize("value", [-1, 0, "3", None, True, 10**12, 1.5, [], 10**30])
def test_133_a_retry_bound_out_of_range_is_refused_by_name(
    coordinator: CoordinatorProcess, value: Any
) -> None:
    body = body_of()
    body["spec"]["retryPolicy"] = {"maxTaskAttempts": value}
    answer = ask(coordinator, "POST", "/jobs", json.dumps(body).encode(), JSON)
    assert answer.status == 422
    assert "maxTaskAttempts" in answer.json["detail"]


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"metadata": {"name": "x" * 1_000_000}}, "name"),
        ({"metadata": {"name": ""}}, "name"),
        ({"apiVersion": "v2"}, "apiVersion"),
        ({"extra": 1}, "extra"),
        ({"spec": {"workload": {"type": "magic", "parameters": {}}}}, "magic"),
        ({"spec": {"workload": {"type": "command", "parameters": {"command": []}}}}, "command"),
        ({"spec": {"workload": {"type": "command", "parameters": {"command": [""]}}}}, "command"),
        (
            {"spec": {"workload": {"type": "command", "parameters": {"command": "echo hi"}}}},
            "command",
        ),
        (
            {
                "spec": {
                    "workload": {
                        "type": "command",
                        "parameters": {"command": ["x"], "outputs": {"required": ["../x"]}},
                    }
                }
            },
            "outputs",
        ),
        (
            {
                "spec": {
                    "workload": {
                        "type": "command",
                        "parameters": {"command": ["x"], "lease_seconds": 0},
                    }
                }
            },
            "lease_seconds",
        ),
    ],
)
def test_133_a_job_that_breaks_a_rule_is_refused_by_the_name_of_the_field(
    coordinator: CoordinatorProcess, change: dict[str, Any], word: str
) -> None:
    answer = ask(coordinator, "POST", "/jobs", json.dumps(body_of(**change)).encode(), JSON)
    assert answer.status == 422
    assert word in answer.json["detail"]
    assert len(answer.body) < 4_000


@pytest.mark.parametrize(
    "path",
    [
        "/jobs?limit=0",
        "/jobs?limit=99999999999999999999999",
        "/events?after=-1",
        "/events?after=9223372036854775808",
        "/jobs/x/logs?tail_lines=-1",
        "/jobs/x/tasks?after=1e5",
    ],
)
def test_a_query_out_of_range_is_refused(coordinator: CoordinatorProcess, path: str) -> None:
    assert ask(coordinator, "GET", path).status == 422


@pytest.mark.parametrize("path", ["/jobs/%ff", "/jobs/a%0Ab", "/jobs/%00", "/none", "/jobs/a/b/c"])
def test_odd_paths_are_not_found(coordinator: CoordinatorProcess, path: str) -> None:
    assert ask(coordinator, "GET", path).status == 404


BAD_KEYS = [
    "..%2f..%2fetc%2fx",
    "../../etc/x",
    "%2e%2e/x",
    "%2fetc%2fx",
    "/etc/x",
    "a%5c..%5cb",
    "x%00y",
    "..%252f..%252fx",
    "a/./b",
    "a//b",
    "a/",
    "",
    "x%C0",
    "x%C1",
    "x%0Ay",
    "cafe%CC%81",
    "a" * 256,
]


@pytest.mark.parametrize("key", BAD_KEYS)
def test_113_115_no_bad_key_reaches_the_store_by_any_method(
    coordinator: CoordinatorProcess, key: str
) -> None:
    for method in ("PUT", "GET", "HEAD"):
        body = b"hi" if method == "PUT" else None
        answer = ask(coordinator, method, f"/artifacts/{key}", body)
        assert answer.status == 400
        if method != "HEAD":
            assert answer.json["detail"]
    outside = [p for p in coordinator.root.rglob("*") if p.name in {"x", "b", "y", "etc"}]
    assert outside == []


def test_113_bytes_that_are_no_url_are_refused(coordinator: CoordinatorProcess) -> None:
    head = b"PUT /v1alpha1/artifacts/caf\xc3\xa9 HTTP/1.1\r\nHost: localhost\r\n"
    request = head + b"Content-Length: 0\r\n\r\n"
    assert raw(coordinator, request, half_close=True).startswith(b"HTTP/1.1 400")


def test_115_one_spelling_of_a_non_ascii_key_works(
    coordinator: CoordinatorProcess, client: CoordinatorClient, tmp_path: Path
) -> None:
    assert ask(coordinator, "PUT", "/artifacts/caf%C3%A9%20x", b"1").json["object_key"] == "café x"
    assert ask(coordinator, "PUT", "/artifacts/cafe%CC%81%20x", b"2").status == 400
    client.get_artifact("café x", tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == b"1"


def test_a_key_cannot_lie_below_another_object(client: CoordinatorClient) -> None:
    client.put_artifact("tree/leaf", b"x")
    for key in ("tree", "tree/leaf/below"):
        with pytest.raises(Conflict):
            client.put_artifact(key, b"y")


def test_105_repeated_and_concurrent_uploads_end_with_one_good_blob(
    coordinator: CoordinatorProcess, client: CoordinatorClient, tmp_path: Path
) -> None:
    _, lease = leased(client)
    data = b"b" * 300_000
    key = f"{lease.output_prefix}/model"
    first = client.put_artifact(key, data)
    with ThreadPoolExecutor(8) as threads:
        records = list(threads.map(lambda _: client.put_artifact(key, data), range(8)))
    assert {record.sha256 for record in records} == {first.sha256}
    output = OutputFile(path="model", key=key, sha256=first.sha256)
    assert client.complete(lease.lease_id, CompleteRequest(outputs=[output])).accepted
    assert client.put_artifact(key, data).accepted
    with pytest.raises(Conflict, match="cannot change"):
        client.put_artifact(key, b"other")
    client.get_artifact(key, tmp_path / "out", first.sha256)
    blob = coordinator.root / "artifacts" / "sha256" / first.sha256[:2] / first.sha256
    assert hashlib.sha256(blob.read_bytes()).hexdigest() == first.sha256
    assert temp_files(coordinator) == []


def put_head(key: str, *headers: str) -> bytes:
    lines = [f"PUT /v1alpha1/artifacts/{key} HTTP/1.1", "Host: localhost", *headers, "", ""]
    return "\r\n".join(lines).encode()


@pytest.mark.parametrize("half_close", [False, True])
@pytest.mark.parametrize(
    "request_bytes",
    [
        put_head("cut", "Content-Length: 1000") + b"a" * 300,
        put_head("cut", "Content-Length: 3000000") + b"a" * 2_500_000,
        put_head("cut", "Transfer-Encoding: chunked") + b"3\r\nabc\r\n",
    ],
)
def test_117_an_upload_cut_short_leaves_nothing_and_a_retry_works(
    coordinator: CoordinatorProcess,
    client: CoordinatorClient,
    tmp_path: Path,
    request_bytes: bytes,
    half_close: bool,
) -> None:
    cut_before = coordinator.log.read_text().count('"request_cut"')
    raw(coordinator, request_bytes, half_close=half_close)
    while coordinator.log.read_text().count('"request_cut"') == cut_before:
        client.healthy()
    with pytest.raises(NotFound):
        client.get_artifact("cut", tmp_path / "out")
    assert temp_files(coordinator) == []
    assert "Traceback" not in coordinator.log.read_text() + coordinator.errors.read_text()
    assert client.put_artifact("whole", b"abc").size_bytes == 3


def test_119_the_digest_header_is_checked_whatever_its_case(
    coordinator: CoordinatorProcess,
) -> None:
    digest = hashlib.sha256(b"hi").hexdigest()

    def put(header: str | None) -> Answer:
        headers = {} if header is None else {"X-Sha256": header}
        return ask(coordinator, "PUT", "/artifacts/digest", b"hi", headers)

    for good in (digest, digest.upper(), None):
        answer = put(good)
        assert (answer.status, answer.json["sha256"]) == (200, digest)
    for bad in (f"sha256:{digest}", digest[:-1], "null", "0" * 64, "q" * 64):
        assert put(bad).status == 400


def test_an_artifact_beyond_the_limit_is_refused_with_and_without_a_length(
    coordinator: CoordinatorProcess, client: CoordinatorClient
) -> None:
    with pytest.raises(InvalidInput, match=r"413.*FLASHML_MAX_ARTIFACT_BYTES"):
        client.put_artifact("large", b"x" * (MAX_BYTES + 1))
    chunk = b"f4240\r\n" + b"x" * 1_000_000 + b"\r\n"
    request = put_head("large", "Transfer-Encoding: chunked") + chunk * 5 + b"0\r\n\r\n"
    assert raw(coordinator, request, half_close=True).startswith(b"HTTP/1.1 413")
    assert ask(coordinator, "HEAD", "/artifacts/large").status == 404
    assert temp_files(coordinator) == []


def test_downloads_support_etag_and_ranges(coordinator: CoordinatorProcess) -> None:
    data = bytes(range(256)) * 20
    ask(coordinator, "PUT", "/artifacts/ranged", data)
    path = "/artifacts/ranged"
    whole = ask(coordinator, "GET", path)
    etag = f'"{hashlib.sha256(data).hexdigest()}"'
    assert (whole.status, whole.body, whole.headers["etag"]) == (200, data, etag)
    assert whole.headers["accept-ranges"] == "bytes"
    head = ask(coordinator, "HEAD", path)
    assert (head.status, head.headers["content-length"], head.headers["etag"]) == (
        200,
        str(len(data)),
        etag,
    )
    part = ask(coordinator, "GET", path, headers={"Range": "bytes=10-19"})
    assert (part.status, part.body) == (206, data[10:20])
    assert part.headers["content-range"] == f"bytes 10-19/{len(data)}"
    assert ask(coordinator, "GET", path, headers={"Range": "bytes=-5"}).body == data[-5:]
    beyond = ask(coordinator, "GET", path, headers={"Range": f"bytes={len(data)}-"})
    assert (beyond.status, beyond.headers["content-range"]) == (416, f"bytes */{len(data)}")
    same = ask(coordinator, "GET", path, headers={"If-None-Match": f'"x", {etag}'})
    assert (same.status, same.body) == (304, b"")
    stale = {"Range": "bytes=0-1", "If-Range": '"other"'}
    assert ask(coordinator, "GET", path, headers=stale).body == data


def test_an_empty_artifact_is_an_artifact(
    coordinator: CoordinatorProcess, client: CoordinatorClient, tmp_path: Path
) -> None:
    assert client.put_artifact("empty", b"").size_bytes == 0
    assert client.get_artifact("empty", tmp_path / "out").size_bytes == 0
    assert ask(coordinator, "GET", "/artifacts/empty").status == 200


def test_output_in_parts_is_stored_once_and_bounded(
    coordinator: CoordinatorProcess, client: CoordinatorClient
) -> None:
    job_id, lease = leased(client)
    path = f"/attempts/{lease.lease_id}/logs"
    assert ask(coordinator, "PUT", f"{path}?offset=0", b"\xff ab\n").json == {"size": 5}
    gap = ask(coordinator, "PUT", f"{path}?offset=9", b"x")
    assert (gap.status, gap.json["size"], gap.json["code"]) == (409, 5, "conflict")
    assert ask(coordinator, "PUT", path, b"x").status == 422
    assert ask(coordinator, "PUT", f"{path}?offset=5", b"x" * 17_000_000).status == 413
    answer = ask(coordinator, "GET", f"/jobs/{job_id}/logs?tail_lines=1")
    assert (answer.status, answer.body.decode()) == (200, "\ufffd ab\n")
    assert answer.headers["content-type"].startswith("text/plain")


def test_121_large_uploads_do_not_hold_up_heartbeats(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    from time import monotonic

    root = tmp_path_factory.mktemp("busy")
    file = root / "file"
    with file.open("wb") as out:
        out.truncate(200_000_000)
    with CoordinatorProcess(root) as process, process.client() as client:
        _, lease = leased(client)
        with ThreadPoolExecutor(2) as threads:
            uploads = [threads.submit(client.put_artifact, f"big-{n}", file) for n in range(2)]
            worst_s = 0.0
            while not all(upload.done() for upload in uploads):
                began = monotonic()
                client.heartbeat(lease.lease_id)
                worst_s = max(worst_s, monotonic() - began)
            assert {upload.result().size_bytes for upload in uploads} == {200_000_000}
    assert worst_s < 1


def test_docs_and_health_are_served(coordinator: CoordinatorProcess) -> None:
    for path in ("/docs", "/openapi.json", "/healthz", "/readyz"):
        connection = http.client.HTTPConnection("127.0.0.1", coordinator.port, timeout=10)
        connection.request("GET", path)
        assert connection.getresponse().status == 200
        connection.close()


def test_no_request_of_this_module_made_an_internal_error(
    coordinator: CoordinatorProcess,
) -> None:
    lines = [json.loads(line) for line in coordinator.log.read_text().splitlines()]
    assert not [line for line in lines if line.get("status") == 500]
    assert not [line for line in lines if "trace" in line]
