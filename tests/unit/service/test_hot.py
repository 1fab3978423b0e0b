"""The short way answers in the same words as the long one, or leaves the answer to it."""

import asyncio
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashruntime.config import AccessSettings, CoordinatorSettings
from flashruntime.errors import FlashError
from flashruntime.protocol.jobs import JobSpec
from flashruntime.protocol.tasks import ClaimRequest
from flashruntime.service import hot
from flashruntime.service.app import create_app
from flashruntime.service.core import Core
from flashruntime.service.errors import TooBusy, TooSlow, status_of
from flashruntime.service.guards import Gate
from flashruntime.service.services import Services
from flashruntime.testing import ManualClock

JSON = {"Content-Type": "application/json"}
SPEC = JobSpec.model_validate(
    {
        "apiVersion": "flashml.dev/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "j"},
        "spec": {"workload": {"type": "command", "parameters": {"command": ["true"]}}},
    }
)


class Coordinator:
    """A coordinator without a socket, and how often the short way was taken."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.loop = asyncio.new_event_loop()
        self.core = Core(CoordinatorSettings(root / "l", root / "a", 100_000), ManualClock())
        self.loop.run_until_complete(self.core.open())
        self.app = create_app()
        self.services = self.app.state.services = Services(self.core)
        access = AccessSettings(allow_open=True, allowed_hosts=frozenset({"*"}))
        self.app.state.gate = Gate(access, self.services.lease_owner)
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
        self.http = httpx.AsyncClient(transport=transport, base_url="http://test/v1alpha1")
        self.short = 0
        sent = hot._send

        async def counted(*args: Any) -> None:
            self.short += 1
            await sent(*args)

        monkeypatch.setattr(hot, "_send", counted)

    def run(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    def twice(
        self, method: str, path: str, content: bytes, headers: dict[str, str]
    ) -> tuple[httpx.Response, httpx.Response]:
        """Send a request both ways; a query, which no route knows, takes the long one."""
        before = self.short
        ways = [
            self.run(self.http.request(method, path + query, content=content, headers=headers))
            for query in ("", "?long")
        ]
        assert self.short - before <= 1
        return ways[0], ways[1]

    def claimed(self) -> str:
        self.run(self.services.jobs.submit(SPEC, None))
        lease = self.run(self.core.ledger(self.core.manager.claim, ClaimRequest(node_id="n")))
        assert lease is not None
        return str(lease.lease_id)


@pytest.fixture
def coordinator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Coordinator]:
    made = Coordinator(tmp_path, monkeypatch)
    yield made
    made.run(made.http.aclose())
    made.run(made.core.close())
    made.loop.close()


def assert_same(ways: tuple[httpx.Response, httpx.Response]) -> int:
    """Check that both answers are one, and return its status."""
    short, long = ways
    assert short.status_code == long.status_code
    assert _without_ids(short) == _without_ids(long)
    return short.status_code


def _without_ids(answer: httpx.Response) -> tuple[dict[str, str], Any]:
    """Return headers and content without what names this one request."""
    headers = {name: value for name, value in answer.headers.items() if name != "x-request-id"}
    content = json.loads(answer.content) if answer.content else None
    if isinstance(content, dict):
        content.pop("request_id", None)
    return headers, content


def test_a_task_is_carried_from_claim_to_result_by_the_short_way(coordinator: Coordinator) -> None:
    coordinator.run(coordinator.services.jobs.submit(SPEC, None))
    body = b'{"node_id": "w", "claim_id": "c", "new": [1]}'
    claim = coordinator.twice("POST", "/leases/claim", body, JSON)
    assert assert_same(claim) == 200
    lease = claim[0].json()
    for path, name in (("output", "output"), ("caf\u00e9 1", "caf%C3%A9%201")):
        key = f"/artifacts/{lease['output_prefix']}/{name}"
        stored = coordinator.twice("PUT", key, b"bytes", {"X-Sha256": _digest("bytes")})
        assert assert_same(stored) == 200
        assert stored[0].json()["object_key"].endswith(path)
    attempt = f"/attempts/{lease['lease_id']}"
    beat = coordinator.twice("POST", f"{attempt}/heartbeat", b'{"metrics": {"a": 1e3}}', JSON)
    assert assert_same(beat) == 200
    digest = _digest("bytes")
    done = coordinator.twice(
        "POST", f"{attempt}/complete", b'{"output_sha256": "%s"}' % digest.encode(), JSON
    )
    assert assert_same(done) == 200
    assert done[0].json()["accepted"]
    assert coordinator.short == 5
    none = coordinator.twice("POST", "/leases/claim", b'{"node_id": "w"}', JSON)
    assert assert_same(none) == 204
    closed = coordinator.twice("PUT", f"/artifacts/{lease['output_prefix']}/late", b"x", {})
    assert assert_same(closed) == 409


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


CASES: list[tuple[str, str, bytes, dict[str, str], int]] = [
    ("POST", "/leases/claim", b"{}", JSON, 422),
    ("POST", "/leases/claim", b'{"node_id": "w"}', {}, 422),
    ("POST", "/leases/claim", b'{"node_id": "w"}', {"Content-Type": "text/plain"}, 422),
    ("POST", "/leases/claim", b'{"node_id": "../w"}', JSON, 422),
    ("POST", "/leases/claim", b'{"node_id": "w", "node_id": 3}', JSON, 422),
    ("POST", "/leases/claim", b'{"node_id": "w", "job_id": "none"}', JSON, 404),
    ("POST", "/leases/claim", b'{"node_id": "w", "session_id": "none"}', JSON, 404),
    ("POST", "/leases/claim", b'{"node_id": "w", "wait_s": 1e999}', JSON, 422),
    ("POST", "/leases/claim", b'{"node_id": "w", "wait_s": NaN}', JSON, 422),
    ("POST", "/leases/claim", b'{"node_id": "w", "x": "\\ud800"}', JSON, 422),
    ("POST", "/leases/claim", b'{"node_id": "w", "x": "\xff"}', JSON, 422),
    ("POST", "/leases/claim", b"[" * 5_000, JSON, 422),
    ("POST", "/leases/claim", b'"' + b"x" * 70_000 + b'"', JSON, 422),
    ("POST", "/leases/claim/", b"{}", JSON, 404),
    ("POST", "/attempts/none/heartbeat", b"", {}, 404),
    ("POST", "/attempts/none/heartbeat", b"null", JSON, 404),
    ("POST", "/attempts/none/heartbeat", b"{}", JSON, 404),
    ("POST", "/attempts/none/heartbeat", b'{"step": -1}', JSON, 422),
    ("POST", "/attempts/none/heartbeat", b'{"metrics": {"a": -1e999}}', JSON, 422),
    ("POST", "/attempts/a%2fb/heartbeat", b"{}", JSON, 404),
    ("POST", f"/attempts/{'a' * 257}/heartbeat", b"{}", JSON, 422),
    ("POST", "/attempts//heartbeat", b"{}", JSON, 404),
    ("GET", "/attempts/none/heartbeat", b"", {}, 405),
    ("POST", "/attempts/none/complete", b'{"output_sha256": "x"}', JSON, 422),
    ("POST", "/attempts/none/complete", b"{}", JSON, 404),
    ("POST", "/nodes/none/heartbeat", b"{}", JSON, 404),
    ("PUT", "/artifacts/a/%2e%2e/b", b"x", {}, 400),
    ("PUT", "/artifacts/a%2fb", b"x", {}, 400),
    ("PUT", "/artifacts/", b"x", {}, 400),
    ("PUT", "/artifacts/a", b"", {}, 200),
    ("PUT", "/artifacts/a", b"x", {"X-Sha256": "0" * 64}, 400),
    ("PUT", "/artifacts/a", b"x", {"X-Sha256": "0"}, 400),
    ("PUT", "/artifacts/a", b"x" * 100_001, {}, 413),
    ("PUT", "/artifacts/b%0A", b"x", {}, 400),
]


def test_what_is_not_plain_is_answered_alike(coordinator: Coordinator) -> None:
    for method, path, content, headers, status in CASES:
        ways = coordinator.twice(method, path, content, headers)
        assert assert_same(ways) == status, (method, path, content)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)
BEATS = st.dictionaries(st.sampled_from(["step", "metrics", "x"]), JSON_VALUES) | JSON_VALUES


def test_any_heartbeat_is_answered_alike(coordinator: Coordinator) -> None:
    path = f"/attempts/{coordinator.claimed()}/heartbeat"
    statuses = set()

    @settings(max_examples=25, deadline=None, database=None)
    @given(BEATS, st.sampled_from([b"", b" ", b"}", b"\x00", b"\xff"]))
    def beat(value: Any, rest: bytes) -> None:
        content = json.dumps(value).encode() + rest
        statuses.add(assert_same(coordinator.twice("POST", path, content, JSON)))

    beat()
    assert statuses == {200, 422}


def test_a_store_that_refuses_is_said_with_retry_after(
    coordinator: Coordinator, tmp_path: Path
) -> None:
    path = f"/attempts/{coordinator.claimed()}/heartbeat"
    (tmp_path / "l" / "ledger.sqlite3").unlink()
    ways = coordinator.twice("POST", path, b"{}", JSON)
    assert assert_same(ways) == 503
    assert ways[0].headers["Retry-After"] == "1"


def test_nothing_stands_between_the_short_way_and_the_routes(coordinator: Coordinator) -> None:
    """A check that stood inside of it would not be asked."""
    assert coordinator.app.user_middleware[-1].cls is hot.HotPaths


def test_a_client_that_goes_in_mid_body_changes_nothing(coordinator: Coordinator) -> None:
    sent: list[Any] = []
    begun = {"type": "http.request", "body": b'{"node_id"', "more_body": True}
    messages = iter([begun, {"type": "http.disconnect"}])

    async def receive() -> Any:
        return next(messages)

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1alpha1/leases/claim",
        "raw_path": b"/v1alpha1/leases/claim",
        "query_string": b"",
        "headers": [
            (b"host", b"localhost"),
            (b"content-type", b"application/json"),
            (b"content-length", b"20"),
        ],
        "app": coordinator.app,
    }
    coordinator.run(coordinator.app(scope, receive, send))
    assert sent[0]["status"] == 400


@pytest.mark.parametrize("error", [TooSlow("too slow"), TooBusy("too busy")])
@pytest.mark.parametrize("query", [b"", b"long"])
def test_a_body_that_is_given_up_is_answered_as_on_the_long_way(
    coordinator: Coordinator, error: FlashError, query: bytes
) -> None:
    sent: list[Any] = []

    async def receive() -> Any:
        raise error

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1alpha1/leases/claim",
        "raw_path": b"/v1alpha1/leases/claim",
        "query_string": query,
        "headers": [(b"host", b"test"), (b"content-type", hot.JSON), (b"content-length", b"10")],
        "app": coordinator.app,
    }
    coordinator.run(coordinator.app(scope, receive, send))
    assert sent[0]["status"] == status_of(error).number
