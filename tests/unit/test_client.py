"""How the client reads what a server answers."""

import hashlib
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import httpx
import pytest

from flashruntime.access import Access, raise_for
from flashruntime.client import CoordinatorClient
from flashruntime.errors import (
    AccessDenied,
    ArtifactCorrupt,
    Conflict,
    CoordinatorUnreachable,
    FlashError,
    InvalidInput,
    NotFound,
    QuotaExceeded,
    Superseded,
    TokenRefused,
)
from flashruntime.protocol.jobs import JobSpec
from flashruntime.testing import free_port

SPEC = JobSpec.model_validate(
    {
        "apiVersion": "flashml.dev/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "j"},
        "spec": {"workload": {"type": "command", "parameters": {"command": ["true"]}}},
    }
)
Answer = Callable[[BaseHTTPRequestHandler], tuple[int, dict[str, str], bytes]]


class Server:
    """A server that gives one prepared answer and keeps what it was asked."""

    def __init__(self) -> None:
        self.answer: tuple[int, dict[str, str], bytes] = (200, {}, b"{}")
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def handle_any(self) -> None:
                self.rfile.read(int(self.headers.get("content-length", 0)))
                outer.asked.append((self.command, self.path, dict(self.headers)))
                status, headers, body = outer.answer
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = do_PUT = handle_any  # noqa: N815 (names of the base class)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (as the base)
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.fixture
def client(server: Server) -> Iterator[CoordinatorClient]:
    with CoordinatorClient(server.url, timeout_s=2) as client:
        yield client


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (401, TokenRefused),
        (403, AccessDenied),
        (410, Superseded),
        (409, Conflict),
        (404, NotFound),
        (400, InvalidInput),
        (413, QuotaExceeded),
        (422, InvalidInput),
        (302, CoordinatorUnreachable),
        (500, CoordinatorUnreachable),
        (503, CoordinatorUnreachable),
    ],
)
def test_each_status_is_one_error_with_the_servers_own_words(
    server: Server, client: CoordinatorClient, status: int, error: type[FlashError]
) -> None:
    server.answer = (status, {}, b'{"detail": "the reason", "code": "x"}')
    with pytest.raises(error, match="the reason") as caught:
        client.job("job-1")
    assert type(caught.value) is error


@pytest.mark.parametrize("body", [b"<html>", b'{"detail": "Not Found"}', b""])
def test_a_404_of_another_program_is_not_taken_for_a_missing_object(
    server: Server, client: CoordinatorClient, body: bytes
) -> None:
    server.answer = (404, {}, body)
    with pytest.raises(NotFound, match=f"{server.url}/ .*is this a coordinator"):
        client.job("job-1")


def test_an_answer_that_is_no_record_counts_as_no_answer(
    server: Server, client: CoordinatorClient
) -> None:
    for body in (b"<html>", b"[]", b""):
        server.answer = (200, {}, body)
        with pytest.raises(CoordinatorUnreachable, match="same version"):
            client.job("job-1")


def test_nobody_listening_is_unreachable_and_says_where() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with CoordinatorClient(url) as client:
        with pytest.raises(CoordinatorUnreachable, match=f"^cannot reach {url}: .*refused"):
            client.nodes()
        assert not client.healthy()


def test_103_one_submit_sends_one_idempotency_key_however_often_it_is_sent(
    server: Server, client: CoordinatorClient
) -> None:
    server.answer = (503, {}, b"{}")
    for _ in range(2):
        with pytest.raises(CoordinatorUnreachable):
            client.submit(SPEC)
    keys = [headers["Idempotency-Key"] for _, _, headers in server.asked]
    assert len(keys) == 4
    assert keys[0] == keys[1] != keys[2] == keys[3]


def test_a_token_is_sent_and_proxies_of_the_environment_are_not_used(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{free_port()}")
    with CoordinatorClient(server.url, token="secret") as client:
        assert client.healthy()
    assert server.asked[0][2]["Authorization"] == "Bearer secret"


def test_a_token_is_asked_for_before_each_call_and_its_absence_is_explained(
    server: Server,
) -> None:
    tokens = ["first", "second"]
    server.answer = (401, {}, b'{"detail": "no", "code": "unauthorized"}')
    with CoordinatorClient(server.url, token=lambda: tokens.pop(0)) as client:
        for _ in range(2):
            with pytest.raises(
                TokenRefused, match=r"FLASHML_TOKEN or FLASHML_TOKEN_FILE"
            ) as caught:
                client.nodes()
            assert "first" not in str(caught.value)
    sent = [headers["Authorization"] for _, _, headers in server.asked]
    assert sent == ["Bearer first", "Bearer second"]


def test_a_token_that_cannot_be_sent_is_refused_without_being_shown() -> None:
    with pytest.raises(InvalidInput, match="token") as caught:
        CoordinatorClient("http://127.0.0.1:1", token="bad\nvalue")
    assert "bad" not in str(caught.value)


def test_an_answer_that_says_too_many_is_waited_for_as_long_as_it_says(server: Server) -> None:
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        server.answer = (200, {}, b'{"items": []}')

    server.answer = (429, {"Retry-After": "2"}, b'{"detail": "slow down", "code": "unavailable"}')
    with httpx.Client(base_url=server.url, auth=Access("t", wait)) as client:
        assert client.get("/v1alpha1/nodes").status_code == 200
    assert waits == [2.0]
    assert len(server.asked) == 2


def test_a_stream_that_is_spent_is_not_sent_again_and_waits_are_bounded(server: Server) -> None:
    waits: list[float] = []
    server.answer = (429, {"Retry-After": "900"}, b"{}")
    with httpx.Client(base_url=server.url, auth=Access(None, waits.append)) as client:
        assert client.put("/k", content=iter([b"x"])).status_code == 429
        assert waits == []
        answer = client.get("/k")
    assert waits == [5.0] * 3
    with pytest.raises(CoordinatorUnreachable) as caught:
        raise_for(answer)
    assert caught.value.retry_after_s == 900.0


def test_a_gap_in_the_output_is_answered_with_where_to_go_on(
    server: Server, client: CoordinatorClient
) -> None:
    server.answer = (409, {}, b'{"detail": "gap", "code": "conflict", "size": 7}')
    assert client.append_log("lease-1", 9, b"x") == 7


@pytest.mark.parametrize("key", ["", "../x", "a//b", "a%2fb", "/etc/passwd"])
def test_a_bad_key_is_refused_before_anything_is_sent(
    server: Server, client: CoordinatorClient, key: str
) -> None:
    with pytest.raises(InvalidInput):
        client.put_artifact(key, b"x")
    assert server.asked == []


def test_an_id_is_one_segment_of_a_path_whatever_it_contains(
    server: Server, client: CoordinatorClient
) -> None:
    with pytest.raises(CoordinatorUnreachable):
        client.job("../a?b#c")
    assert server.asked[0][1] == "/v1alpha1/jobs/..%2Fa%3Fb%23c"


def test_a_download_appears_whole_and_verified_or_not_at_all(
    server: Server, client: CoordinatorClient, tmp_path: Path
) -> None:
    digest = hashlib.sha256(b"data").hexdigest()
    target = tmp_path / "file"
    target.write_bytes(b"before")
    server.answer = (200, {"ETag": f'"{digest}"'}, b"DATA")
    with pytest.raises(ArtifactCorrupt, match="fetch it again"):
        client.get_artifact("k", target)
    server.answer = (200, {"ETag": f'"{digest}"'}, b"data")
    with pytest.raises(ArtifactCorrupt):
        client.get_artifact("k", target, sha256="0" * 64)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert target.read_bytes() == b"before"
    assert client.get_artifact("k", target, sha256=digest.upper()).size_bytes == 4
    assert target.read_bytes() == b"data"


@pytest.mark.parametrize("status", [409, 410, 503])
def test_a_failed_call_names_its_request_as_the_coordinators_log_does(
    server: Server, client: CoordinatorClient, status: int
) -> None:
    server.answer = (status, {}, b'{"detail": "no", "code": "x"}')
    with pytest.raises(FlashError) as caught:
        client.job("job-1")
    sent = server.asked[-1][2]["X-Request-ID"]
    assert f"(request {sent})" in str(caught.value)
