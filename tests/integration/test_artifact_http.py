"""Artifacts over raw sockets: keys, ranges, cuts and damage as a foreign client meets them."""

import hashlib
import json
import os
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic

import pytest

from flashruntime.client import CoordinatorClient
from flashruntime.errors import CoordinatorUnreachable, InvalidInput, NotFound
from flashruntime.protocol.jobs import JobSpec
from flashruntime.protocol.tasks import ClaimRequest, CompleteRequest, Lease
from flashruntime.testing import CoordinatorProcess

pytestmark = pytest.mark.integration
JOB_BYTES, STORE_BYTES = 3_000_000, 60_000_000


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CoordinatorProcess]:
    limits = {
        "FLASHML_MAX_JOB_BYTES": str(JOB_BYTES),
        "FLASHML_MAX_STORE_BYTES": str(STORE_BYTES),
    }
    with CoordinatorProcess(tmp_path_factory.mktemp("artifacts"), limits) as process:
        yield process


@pytest.fixture
def client(coordinator: CoordinatorProcess) -> Iterator[CoordinatorClient]:
    with coordinator.client() as client:
        yield client


class Answer:
    """A response as it came over the wire."""

    def __init__(self, received: bytes) -> None:
        head, _, self.body = received.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        self.status = int(first.split()[1]) if first else 0
        split = (line.split(": ", 1) for line in lines)
        self.headers = {name.lower(): value for name, value in split}


def exchange(
    coordinator: CoordinatorProcess, request: bytes, *, half_close: bool = False
) -> Answer:
    with socket.create_connection(("127.0.0.1", coordinator.port), timeout=10) as connection:
        connection.sendall(request)
        if half_close:
            connection.shutdown(socket.SHUT_WR)
        received = b""
        while block := connection.recv(65536):
            received += block
    return Answer(received)


def ask(
    coordinator: CoordinatorProcess,
    method: str,
    key: bytes,
    *headers: str,
    body: bytes = b"",
) -> Answer:
    lines = ["Host: localhost", "Connection: close", *headers]
    if method == "PUT":
        lines.append(f"Content-Length: {len(body)}")
    head = f"{method} /v1alpha1/artifacts/".encode() + key + b" HTTP/1.1\r\n"
    return exchange(coordinator, head + "\r\n".join(lines).encode() + b"\r\n\r\n" + body)


def leased(client: CoordinatorClient) -> Lease:
    spec = {
        "apiVersion": "flashml.dev/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "j"},
        "spec": {"workload": {"type": "command", "parameters": {"command": ["true"]}}},
    }
    job = client.submit(JobSpec.model_validate(spec))
    lease = client.claim(ClaimRequest(node_id="n1", job_id=job.job_id))
    assert lease is not None
    return lease


def blob(coordinator: CoordinatorProcess, sha256: str) -> Path:
    return coordinator.root / "artifacts" / "sha256" / sha256[:2] / sha256


def rot(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


READY = b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
KEYS_113 = (
    b"..%2f..%2fetc%2fx ../../etc/x %2e%2e/x %2fetc%2fx /etc/x a%5c..%5cb x%00y ..%252f..%252fx "
    b"a/./b a//b"
).split()
KEYS_115 = (b"cafe%CC%81", b"x%C0", b"x%C1", b"x%0Ay", b"x%0dy", b"%ff", b"%c0%ae%c0%ae/x", b"%")
KEYS_L14 = (b"a" * 300, b"//etc", b"..%2F", b"a/", b"x" * 2_000, b"%E2%80%AE", b"a%20/..")


@pytest.mark.parametrize("key", [*KEYS_113, *KEYS_115, *KEYS_L14])
def test_113_115_l14_each_key_word_for_word_is_refused_and_reaches_nothing(
    coordinator: CoordinatorProcess, key: bytes
) -> None:
    outside = coordinator.root / "etc"
    outside.mkdir(exist_ok=True)
    (outside / "x").write_bytes(b"secret")
    for method in ("PUT", "GET", "HEAD"):
        answer = ask(coordinator, method, key, body=b"hi" if method == "PUT" else b"")
        assert answer.status == 400
        assert b"secret" not in answer.body
        if method != "HEAD":
            assert json.loads(answer.body)["detail"]
    assert (outside / "x").read_bytes() == b"secret"
    stored = hashlib.sha256(b"hi").hexdigest()
    assert not blob(coordinator, stored).exists()


def test_ranges_and_conditions_as_http_has_them(coordinator: CoordinatorProcess) -> None:
    data = bytes(range(256)) * 20
    size = len(data)
    assert ask(coordinator, "PUT", b"ranged", body=data).status == 200
    etag = f'"{hashlib.sha256(data).hexdigest()}"'

    def get(*headers: str, method: str = "GET") -> Answer:
        return ask(coordinator, method, b"ranged", *headers)

    for text, start, end in (
        ("bytes=0-0", 0, 1),
        ("bytes=10-19", 10, 20),
        ("bytes=5000-", 5000, size),
        ("bytes=-7", size - 7, size),
        (f"bytes=-{size + 9}", 0, size),
        (f"bytes=100-{size * 2}", 100, size),
    ):
        part = get(f"Range: {text}")
        assert (part.status, part.body) == (206, data[start:end])
        assert part.headers["content-range"] == f"bytes {start}-{end - 1}/{size}"
        assert part.headers["content-length"] == str(end - start)
        assert part.headers["etag"] == etag
    for ignored in ("bytes=0-1,5-6", "bytes=9-2", "rows=0-1", "bytes=x", "bytes=-"):
        whole = get(f"Range: {ignored}")
        assert (whole.status, whole.body) == (200, data)
        assert "content-range" not in whole.headers
    for beyond in (f"bytes={size}-", "bytes=-0", f"bytes={10**30}-"):
        refused = get(f"Range: {beyond}")
        assert (refused.status, refused.headers["content-range"]) == (416, f"bytes */{size}")
    assert get("Range: bytes=0-1", f"If-Range: {etag}").body == data[:2]
    for stale in ('"other"', f"W/{etag}", "Wed, 21 Oct 2026 07:28:00 GMT"):
        assert get("Range: bytes=0-1", f"If-Range: {stale}").body == data
    for method in ("GET", "HEAD"):
        for tags in (etag, f'"x", {etag}', f"W/{etag}", "*"):
            same = get(f"If-None-Match: {tags}", "Range: bytes=0-1", method=method)
            assert (same.status, same.body, same.headers["etag"]) == (304, b"", etag)
    head = get("Range: bytes=0-1", method="HEAD")
    assert (head.status, head.body, head.headers["content-length"]) == (200, b"", str(size))
    assert "content-range" not in head.headers


def test_ranges_of_a_large_object_and_of_an_empty_one(
    coordinator: CoordinatorProcess, client: CoordinatorClient
) -> None:
    data = os.urandom(3_300_000)
    client.put_artifact("large", data)
    for start, end in ((0, 1), (1_048_575, 1_048_577), (2_000_000, 3_300_000), (0, 3_300_000)):
        part = ask(coordinator, "GET", b"large", f"Range: bytes={start}-{end - 1}")
        assert (part.status, part.body == data[start:end]) == (206, True)
    client.put_artifact("nothing", b"")
    assert ask(coordinator, "GET", b"nothing", "Range: bytes=0-").status == 416
    assert ask(coordinator, "GET", b"nothing").status == 200


def test_105_identical_uploads_at_once_end_with_one_blob_and_a_different_one_is_refused(
    coordinator: CoordinatorProcess, client: CoordinatorClient, tmp_path: Path
) -> None:
    lease = leased(client)
    data = os.urandom(200_000)
    key = lease.commit_key.encode()
    digest = hashlib.sha256(data).hexdigest()
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda _: ask(coordinator, "PUT", key, body=data), range(8)))
    assert {answer.status for answer in answers} == {200}
    assert client.complete(lease.lease_id, CompleteRequest(output_sha256=digest)).accepted
    mixed = [data, b"other"] * 4
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda body: ask(coordinator, "PUT", key, body=body), mixed))
    assert [answer.status for answer in answers] == [200, 409] * 4
    client.get_artifact(lease.commit_key, tmp_path / "out", digest)
    assert list((coordinator.root / "artifacts" / "tmp").iterdir()) == []


def test_117_a_chunked_upload_that_is_cut_or_malformed_leaves_nothing(
    coordinator: CoordinatorProcess, client: CoordinatorClient, tmp_path: Path
) -> None:
    head = b"PUT /v1alpha1/artifacts/cut HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    size = b"%x" % 2_000_000
    for body in (
        b"",
        b"3\r\nabc\r\n",
        b"3\r\nab",
        b"zz\r\nabc\r\n0\r\n\r\n",
        size + b"\r\n" + b"x" * 1_900_000,
    ):
        with socket.create_connection(("127.0.0.1", coordinator.port), timeout=10) as connection:
            connection.sendall(head + body)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    deadline = monotonic() + 10
    while list((coordinator.root / "artifacts" / "tmp").iterdir()):
        assert monotonic() < deadline
        client.healthy()
    with pytest.raises(NotFound):
        client.get_artifact("cut", tmp_path / "out")
    client.put_artifact("cut", b"abc")
    client.get_artifact("cut", tmp_path / "out")
    assert "Traceback" not in coordinator.log.read_text() + coordinator.errors.read_text()


def test_119_each_spelling_of_a_digest(coordinator: CoordinatorProcess) -> None:
    digest = hashlib.sha256(b"hi").hexdigest()
    for header in (f"X-Sha256: {digest}", f"X-Sha256: {digest.upper()}", f"x-sha256:   {digest}"):
        assert ask(coordinator, "PUT", b"spelled", header, body=b"hi").status == 200
    assert ask(coordinator, "PUT", b"spelled", body=b"hi").status == 200
    base64 = "jzUuOGoe1nxw"
    for wrong in (f"sha256:{digest}", digest[:-1], digest + "0", base64, "null", "", "0" * 64):
        answer = ask(coordinator, "PUT", b"spelled", f"X-Sha256: {wrong}", body=b"hi")
        assert answer.status == 400


def test_quotas_answer_413_and_507_and_name_the_setting(
    coordinator: CoordinatorProcess, client: CoordinatorClient
) -> None:
    lease = leased(client)
    with pytest.raises(InvalidInput, match=rf"413 job {lease.job_id} .*FLASHML_MAX_JOB_BYTES"):
        client.put_artifact(lease.commit_key, bytes(JOB_BYTES + 1))
    with pytest.raises(CoordinatorUnreachable, match=r"507 .*FLASHML_MAX_STORE_BYTES"):
        client.put_artifact("too/much", bytes(STORE_BYTES + 1))
    chunked = ["Transfer-Encoding: chunked", "Host: localhost"]
    chunk = b"f4240\r\n" + bytes(1_000_000) + b"\r\n"
    head = f"PUT /v1alpha1/artifacts/{lease.commit_key} HTTP/1.1\r\n" + "\r\n".join(chunked)
    request = head.encode() + b"\r\n\r\n" + chunk * 4 + b"0\r\n\r\n"
    assert exchange(coordinator, request, half_close=True).status == 413
    assert client.put_artifact(lease.commit_key, bytes(JOB_BYTES)).size_bytes == JOB_BYTES
    assert list((coordinator.root / "artifacts" / "tmp").iterdir()) == []


def test_rotten_bytes_are_a_404_or_a_break_never_a_whole_answer(
    coordinator: CoordinatorProcess, client: CoordinatorClient, tmp_path: Path
) -> None:
    for key, data in (("rot/small", b"good bytes"), ("rot/large", os.urandom(3_000_000))):
        record = client.put_artifact(key, data)
        rot(blob(coordinator, record.sha256))
        answer = ask(coordinator, "GET", key.encode())
        if key == "rot/small":
            assert answer.status == 404
            assert "upload" in json.loads(answer.body)["detail"]
        else:
            assert (answer.status, len(answer.body) < len(data)) == (200, True)
        for method in ("GET", "HEAD"):
            assert ask(coordinator, method, key.encode()).status == 404
        ready = exchange(
            coordinator, b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        )
        assert json.loads(ready.body)["damaged_artifacts"] >= 1
        client.put_artifact(key, data)
        client.get_artifact(key, tmp_path / "out", record.sha256)
    found = [e for e in client.events(None, limit=10_000).items if e.type == "ARTIFACT_CORRUPT"]
    assert [event.data["key"] for event in found] == ["rot/small", "rot/large"]
    assert "Traceback" not in coordinator.log.read_text() + coordinator.errors.read_text()
