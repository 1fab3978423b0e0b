"""The gate before the routes: every route has a rule, and each rule holds."""

import asyncio
import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.routing import iter_route_contexts

from flashruntime.config import AccessSettings
from flashruntime.credentials import PREFIX, Role, digest_of, new_token
from flashruntime.leases.owners import LeaseOwner
from flashruntime.service import limits
from flashruntime.service.addresses import crosses_sites, is_loopback, name_in
from flashruntime.service.app import app, create_app
from flashruntime.service.errors import TooBusy, TooSlow, status_of
from flashruntime.service.guards import Gate, Guard
from flashruntime.service.limits import BodyWatch, HeldBytes, OpenRequests, Rates, SteadyBody
from flashruntime.service.rules import RULES, Access, Table

OPERATOR, POOL, OTHER = (PREFIX + letter * 43 for letter in "abc")
LEASE, FOREIGN, GONE = (f"lease-{digit * 32}" for digit in "abc")
OWNERS = {
    LEASE: LeaseOwner("pool-1", f"outputs/job-1/00000/{LEASE}"),
    FOREIGN: LeaseOwner("other", f"outputs/job-1/00001/{FOREIGN}"),
}
API = "/v1alpha1"


async def find_owner(lease_id: str) -> LeaseOwner | None:
    return OWNERS.get(lease_id)


class Answer:
    """What the gate, or the application behind it, answered."""

    status = 0
    body = b""
    headers: Mapping[str, str] = {}

    @property
    def detail(self) -> str:
        return str(json.loads(self.body)["detail"])


class Behind:
    """The application behind the gate: says that it was reached."""

    state: Any

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        start = {"type": "http.response.start", "status": 200}
        await send({**start, "headers": [(b"content-type", scope["kind"])]})
        await send({"type": "http.response.body", "body": b"through"})


def ask(
    gate: Gate | None,
    method: str,
    path: str,
    headers: Mapping[str, str] | None = None,
    *,
    server: tuple[str, int | None] | None = ("127.0.0.1", 8000),
    kind: bytes = b"application/json",
    query: str = "",
) -> Answer:
    """Send one request through the gate."""
    given = {"host": "127.0.0.1:8000", **(headers or {})}
    behind = Behind()
    behind.state = type("State", (), {"gate": gate})
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in given.items()],
        "server": server,
        "client": ("127.0.0.1", 5),
        "app": behind,
        "kind": kind,
    }
    answer = Answer()

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            answer.status = message["status"]
            answer.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            answer.body += message.get("body", b"")

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    asyncio.run(Guard(behind)(scope, receive, send))
    return answer


def gate_of(**changes: Any) -> Gate:
    return Gate(AccessSettings(**changes), find_owner)


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Gate:
    """A gate with the tokens of an operator and of two workers."""
    file = tmp_path_factory.mktemp("tokens") / "tokens"
    lines = [("operator", "alice", OPERATOR), ("worker", "pool", POOL), ("worker", "other", OTHER)]
    text = "".join(f"{role} {name} sha256:{digest_of(t).hex()}\n" for role, name, t in lines)
    file.write_text(text)
    file.chmod(0o600)
    return gate_of(tokens_file=file)


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def without_rule(application: FastAPI) -> list[str]:
    """Return the routes of an application that no rule speaks of; HEAD follows GET."""
    found = []
    for route in iter_route_contexts(application.routes):
        methods = route.methods or {"ANY"}
        wanted = methods - {"HEAD"} if "GET" in methods else methods
        found += [f"{method} {route.path}" for method in sorted(wanted)]
    assert len(found) > 20
    return [name for name in found if name not in RULES]


def call_of(rule: str) -> tuple[str, str]:
    """Return a request that a rule is about."""
    method, path = rule.split()
    for name, value in (("{key:anytext}", "k"), ("{job_id}", "job-1"), ("{node_id}", "pool-1")):
        path = path.replace(name, value)
    return method, path.replace("{lease_id}", LEASE)


def test_l11_every_route_of_the_application_has_a_rule() -> None:
    """Say in service/rules.py who may call a new route; until then it is for operators."""
    assert without_rule(app) == []


def test_l11_a_new_route_without_a_rule_is_found() -> None:
    application = create_app()
    application.get("/new/{name}")(lambda: None)
    application.post("/healthz")(lambda: None)
    application.mount("/assets", Behind())
    assert without_rule(application) == ["GET /new/{name}", "POST /healthz", "ANY /assets"]


def test_the_description_says_which_calls_take_a_token() -> None:
    paths = app.openapi()["paths"]
    assert app.openapi()["security"] == [{"token": []}]
    without = {path for path in paths for call in paths[path].values() if "security" in call}
    assert without == {"/healthz", "/readyz"}


def test_l11_only_health_is_open() -> None:
    opened = {name for name, access in RULES.items() if access is Access.OPEN}
    assert opened == {"GET /healthz", "GET /readyz"}


@pytest.mark.parametrize("rule", RULES)
def test_l11_each_rule_holds_for_no_token_a_wrong_one_and_each_role(
    closed: Gate, rule: str
) -> None:
    method, path = call_of(rule)
    access = RULES[rule]
    open_to_all = access is Access.OPEN
    assert ask(closed, method, path).status == (200 if open_to_all else 401)
    assert ask(closed, method, path, bearer(new_token())).status == (200 if open_to_all else 401)
    for role, token in ((Role.OPERATOR, OPERATOR), (Role.WORKER, POOL)):
        expected = 200 if open_to_all or role in access.value else 403
        assert ask(closed, method, path, bearer(token)).status == expected


@pytest.mark.parametrize("rule", RULES)
def test_a_path_has_one_rule(rule: str) -> None:
    """Two templates that match one path could give it the wrong one's role."""
    method, path = call_of(rule)
    assert Table().access(method, path)[0] is RULES[rule]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/none"),
        ("GET", f"{API}/unheard/of"),
        ("DELETE", f"{API}/jobs/job-1"),
        ("GET", "/healthz/"),
        ("POST", "/healthz"),
        ("GET", "//healthz"),
        ("GET", "/healthz/../v1alpha1/jobs"),
        ("OPTIONS", f"{API}/jobs"),
    ],
)
def test_l11_what_has_no_rule_needs_the_token_of_an_operator(
    closed: Gate, method: str, path: str
) -> None:
    assert ask(closed, method, path).status == 401
    assert ask(closed, method, path, bearer(POOL)).status == 403
    assert ask(closed, method, path, bearer(OPERATOR)).status == 200


def test_a_missing_token_is_asked_for_and_a_wrong_one_is_named_as_such(closed: Gate) -> None:
    missing, wrong = (ask(closed, "GET", f"{API}/jobs", h) for h in ({}, bearer(new_token())))
    assert missing.headers["www-authenticate"] == 'Bearer realm="flashruntime"'
    assert "Authorization: Bearer" in missing.detail
    assert 'error="invalid_token"' in wrong.headers["www-authenticate"]
    assert wrong.detail != missing.detail


@pytest.mark.parametrize(
    "value",
    ["", "Bearer", "Bearer ", f"Token {POOL}", "Basic !!", "Basic YQ==", f"Bearer {POOL} x", "é"],
)
def test_no_other_authorization_lets_anybody_in(closed: Gate, value: str) -> None:
    assert ask(closed, "GET", f"{API}/jobs", {"authorization": value}).status == 401


def test_a_browser_is_asked_for_the_token_as_a_password(closed: Gate) -> None:
    asked = ask(closed, "GET", "/", {"accept": "text/html,*/*"})
    assert asked.headers["www-authenticate"].startswith("Basic")
    given = base64.b64encode(f"anyone:{OPERATOR}".encode()).decode()
    assert ask(closed, "GET", "/", {"authorization": f"Basic {given}"}).status == 200


@pytest.mark.parametrize("call", ["heartbeat", "complete", "fail"])
def test_a_worker_acts_only_on_leases_of_its_own(closed: Gate, call: str) -> None:
    for lease_id, token, status in (
        (LEASE, POOL, 200),
        (LEASE, OTHER, 403),
        (FOREIGN, POOL, 403),
        (FOREIGN, OTHER, 200),
        (GONE, POOL, 200),
    ):
        path = f"{API}/attempts/{lease_id}/{call}"
        assert ask(closed, "POST", path, bearer(token)).status == status


@pytest.mark.parametrize("name", ["lease_id", "lease%5Fid", "x=1&lease_id"])
def test_a_lease_that_the_query_names_is_looked_at_too(closed: Gate, name: str) -> None:
    path = f"{API}/jobs/job-1/tasks/0/checkpoints/parts/{'0' * 64}"
    for lease_id, status in ((LEASE, 200), (FOREIGN, 403)):
        query = f"{name}={lease_id}"
        assert ask(closed, "PUT", path, bearer(POOL), query=query).status == status


def test_a_worker_speaks_for_nodes_of_its_own_only(closed: Gate) -> None:
    path = f"{API}/nodes/pool-1/heartbeat"
    assert ask(closed, "POST", path, bearer(POOL)).status == 200
    refused = ask(closed, "POST", path, bearer(OTHER))
    assert refused.status == 403
    assert "FLASHML_NODE_ID" in refused.detail


@pytest.mark.parametrize(
    ("key", "allowed"),
    [
        (f"outputs/job-1/00000/{LEASE}/metrics.json", True),
        (f"outputs/job-1/00001/{FOREIGN}/metrics.json", False),
        (f"{LEASE}/metrics.json", False),
        (f"outputs/job-1/00000/{GONE}/x", False),
        (f"outputs/job-1/00001/{FOREIGN}/outputs/job-1/00000/{LEASE}/x", False),
        (f"outputs/job-1/00000/{LEASE}", False),
        ("inputs/data", False),
    ],
)
def test_a_worker_writes_below_the_prefix_of_its_own_leases_only(
    closed: Gate, key: str, allowed: bool
) -> None:
    from flashruntime.errors import AccessDenied
    from flashruntime.service.auth import Caller

    pool = Caller("pool", frozenset({Role.WORKER}), ("pool", "pool-*"))
    if allowed:
        asyncio.run(closed.owners.require_key(pool, key))
    else:
        with pytest.raises(AccessDenied):
            asyncio.run(closed.owners.require_key(pool, key))
    asyncio.run(closed.owners.require_key(Caller("alice", frozenset({Role.OPERATOR})), key))


@pytest.mark.parametrize("address", ["10.0.0.5", "::", "172.17.0.2", "::ffff:10.0.0.5"])
def test_without_tokens_another_address_is_served_only_if_allowed(address: str) -> None:
    server = (address, 8000)
    refused = ask(gate_of(), "GET", f"{API}/jobs", server=server)
    assert refused.status == 403
    assert "FLASHML_ALLOW_OPEN" in refused.detail
    assert ask(gate_of(allow_open=True), "GET", f"{API}/jobs", server=server).status == 200
    with_token = gate_of(token_digest=digest_of(OPERATOR))
    answer = ask(with_token, "GET", f"{API}/jobs", bearer(OPERATOR), server=server)
    assert answer.status == 200
    assert ask(gate_of(), "GET", "/healthz", server=server).status == 200


@pytest.mark.parametrize("server", [None, ("/run/flash.sock", None), ("::1", 8000)])
def test_this_machine_needs_no_token(server: tuple[str, int | None] | None) -> None:
    assert ask(gate_of(), "GET", f"{API}/jobs", server=server).status == 200


@pytest.mark.parametrize(
    ("host", "allow_open", "allowed", "status"),
    [
        ("localhost:8000", False, (), 200),
        ("LOCALHOST", False, (), 200),
        ("[::1]:8000", False, (), 200),
        ("127.0.0.1", False, (), 200),
        ("evil.example:8000", False, (), 403),
        ("localhost.evil.example", False, (), 403),
        ("0.0.0.0:8000", False, (), 403),
        ("", False, (), 403),
        ("[::1", False, (), 403),
        ("localhost:x", False, (), 403),
        ("localhost:80:80", False, (), 403),
        ("evil@localhost", False, (), 403),
        ("coordinator:8000", True, (), 403),
        ("coordinator:8000", True, ("coordinator",), 200),
        ("Coordinator", False, ("coordinator",), 200),
        ("10.0.0.5:8000", True, (), 200),
        ("10.0.0.5:8000", False, (), 403),
        ("evil.example", True, ("*",), 200),
    ],
)
def test_without_tokens_only_names_of_this_coordinator_are_answered(
    host: str, allow_open: bool, allowed: tuple[str, ...], status: int
) -> None:
    """Else a page could point its own name at 127.0.0.1 and talk to it."""
    gate = gate_of(allow_open=allow_open, allowed_hosts=frozenset(allowed))
    answer = ask(gate, "GET", f"{API}/jobs", {"host": host})
    assert answer.status == status
    assert status == 200 or "FLASHML_ALLOWED_HOSTS" in answer.detail


@pytest.mark.parametrize(
    ("method", "headers", "crosses"),
    [
        ("POST", {}, False),
        ("POST", {"sec-fetch-site": "same-origin", "origin": "http://other"}, False),
        ("POST", {"sec-fetch-site": "none"}, False),
        ("POST", {"sec-fetch-site": "cross-site"}, True),
        ("PUT", {"sec-fetch-site": "same-site"}, True),
        ("POST", {"origin": "http://127.0.0.1:8000"}, False),
        ("POST", {"origin": "HTTP://127.0.0.1:8000"}, False),
        ("POST", {"origin": "http://127.0.0.1:9000"}, True),
        ("POST", {"origin": "http://evil.example"}, True),
        ("POST", {"origin": "null"}, True),
        ("GET", {"origin": "http://evil.example"}, False),
        ("GET", {"sec-fetch-site": "cross-site"}, True),
        ("GET", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, False),
        ("POST", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, True),
    ],
)
def test_pages_of_other_sites_cannot_change_anything(
    method: str, headers: dict[str, str], crosses: bool
) -> None:
    given = {"host": "127.0.0.1:8000", **headers}
    raw = {name.encode(): value.encode() for name, value in given.items()}
    assert crosses_sites(method, raw) is crosses
    for gate in (gate_of(), gate_of(token_digest=digest_of(OPERATOR))):
        shown = {**headers, **bearer(OPERATOR)}
        answer = ask(gate, method, f"{API}/artifacts/k", shown)
        assert answer.status == (403 if crosses else 200)


def test_headers_and_addresses_have_a_limit() -> None:
    many = {f"x-{number}": "v" for number in range(200)}
    assert ask(gate_of(), "GET", f"{API}/jobs", many).status == 431
    assert ask(gate_of(), "GET", f"{API}/jobs", {"x": "v" * 40_000}).status == 431
    assert ask(gate_of(), "GET", f"{API}/jobs/" + "j" * 20_000).status == 414


def test_a_caller_that_asks_too_often_is_told_when_to_come_again(closed: Gate) -> None:
    gate = gate_of(max_requests_per_s=2)
    statuses = [ask(gate, "GET", f"{API}/jobs").status for _ in range(6)]
    assert statuses[:4] == [200] * 4
    refused = ask(gate, "GET", f"{API}/jobs")
    assert (refused.status, refused.headers["retry-after"]) == (429, "1")
    assert ask(gate, "GET", "/healthz").status == 200


def test_a_bucket_fills_again_and_callers_do_not_share_one() -> None:
    now = [0.0]
    rates = Rates(10, lambda: now[0])
    assert [rates.take("a") for _ in range(21)] == [True] * 20 + [False]
    assert rates.take("b")
    now[0] += 0.1
    assert [rates.take("a"), rates.take("a")] == [True, False]


def test_the_callers_that_are_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_CALLERS", 3)
    rates = Rates(1, lambda: 0.0)
    for number in range(10):
        rates.take(str(number))
    assert len(rates._left) == 3


def test_open_requests_are_bounded_for_one_and_for_all() -> None:
    opened = OpenRequests(4)
    assert [opened.enter("a") for _ in range(3)] == [None] * 3
    assert "this caller" in (opened.enter("a") or "")
    assert opened.enter("b") is None
    assert "4 requests are open" in (opened.enter("b") or "")
    opened.leave("a")
    assert opened.enter("b") is None
    for caller in "aabb":
        opened.leave(caller)
    assert opened.enter("a") is None


def test_a_request_that_fails_is_no_longer_counted_as_open() -> None:
    gate = gate_of(max_open_requests=1)

    async def failing(*_: Any) -> None:
        raise ValueError

    async def both() -> None:
        for _ in range(2):
            scope = {
                "method": "GET",
                "path": "/x",
                "raw_path": b"/x",
                "query_string": b"",
                "headers": [(b"host", b"localhost")],
                "server": ("127.0.0.1", 1),
            }
            with pytest.raises(ValueError):  # noqa: PT011 (raised above)
                await gate.pass_on(failing, scope, failing, failing)  # type: ignore[arg-type]

    asyncio.run(both())


def test_a_body_that_stalls_or_trickles_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = [{"type": "http.request", "body": b"x", "more_body": True}] * 3

    async def receive() -> Any:
        if pieces:
            return pieces.pop()
        return await asyncio.Event().wait()

    async def read() -> int:
        body = SteadyBody(receive, BodyWatch())
        for got in range(10):
            try:
                await body()
            except TooSlow:
                return got
        return 10

    monkeypatch.setattr(limits, "LOOK_S", 0.01)
    monkeypatch.setattr(limits, "BODY_IDLE_S", 0.02)
    assert asyncio.run(read()) == 3
    pieces += [{"type": "http.request", "body": b"x", "more_body": True}] * 3
    monkeypatch.setattr(limits, "BODY_IDLE_S", 60.0)
    monkeypatch.setattr(limits, "BODY_GRACE_S", 0.02)
    assert asyncio.run(read()) == 3


def test_bodies_held_in_memory_are_bounded_and_given_back() -> None:
    held = HeldBytes(10)

    async def receive() -> Any:
        return {"type": "http.request", "body": b"x" * 6, "more_body": True}

    async def run() -> None:
        first, second = (SteadyBody(receive, BodyWatch(), held) for _ in range(2))
        await first()
        with pytest.raises(TooBusy):
            await second()
        first.release()
        second.release()
        await SteadyBody(receive, BodyWatch(), held)()
        await SteadyBody(receive, BodyWatch())()

    asyncio.run(run())
    assert status_of(TooBusy()).number == 503


@pytest.mark.parametrize(
    ("method", "path", "streamed"),
    [
        ("PUT", f"{API}/artifacts/a/logs", True),
        ("PUT", f"{API}/jobs/j/tasks/0/checkpoints/parts/x", True),
        ("PUT", f"{API}/attempts/{LEASE}/logs", False),
        ("POST", f"{API}/jobs", False),
    ],
)
def test_what_goes_to_disk_as_it_comes_is_not_held(method: str, path: str, streamed: bool) -> None:
    assert limits.is_streamed({"method": method, "path": path}) is streamed


def test_a_request_that_is_cancelled_while_its_body_stalls_stays_cancelled() -> None:
    async def receive() -> Any:
        return await asyncio.Event().wait()

    async def run() -> None:
        waiting = asyncio.create_task(_received(SteadyBody(receive, BodyWatch())))
        await asyncio.wait([waiting], timeout=0.01)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(run())


async def _received(body: SteadyBody) -> Any:
    return await body()


def test_waiting_for_the_end_of_the_connection_has_no_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A claim that waits for work listens for the caller's hanging up."""
    monkeypatch.setattr(limits, "LOOK_S", 0.001)
    monkeypatch.setattr(limits, "BODY_IDLE_S", 0.0)
    ready = asyncio.Event()

    async def messages() -> list[Any]:
        asyncio.get_running_loop().call_later(0.02, ready.set)
        return [await body(), await body()]

    async def receive() -> Any:
        if not seen:
            seen.append(1)
            return {"type": "http.request", "body": b"", "more_body": False}
        await ready.wait()
        return {"type": "http.disconnect"}

    seen: list[int] = []
    body = SteadyBody(receive, BodyWatch())
    assert asyncio.run(messages())[1] == {"type": "http.disconnect"}


def test_every_answer_says_what_browsers_must_not_do(closed: Gate) -> None:
    for answer in (ask(closed, "GET", f"{API}/jobs"), ask(closed, "GET", "/healthz")):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert answer.headers["cache-control"] == "no-store"
    page = ask(closed, "GET", "/", bearer(OPERATOR), kind=b"text/html; charset=utf-8")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert page.headers["x-frame-options"] == "DENY"


def test_a_web_socket_is_closed_and_an_application_without_a_gate_is_shut() -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(Guard(Behind())({"type": "websocket"}, send, send))  # type: ignore[arg-type]
    assert sent == [{"type": "websocket.close", "code": 1008}]
    assert ask(None, "GET", f"{API}/jobs").status == 503


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.8.9.1", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("fe80::1%eth0", False),
        ("localhost", False),
        ("", False),
        ("10.0.0.1", False),
        ("::", False),
    ],
)
def test_loopback_is_told_by_the_address(address: str, expected: bool) -> None:
    assert is_loopback(address) is expected


def test_a_host_header_is_a_name_or_nothing() -> None:
    assert name_in(b"[::1]:80") == "::1"
    assert name_in(b"a_b-c.d:1") == "a_b-c.d"
    for wrong in (b"[x]", b"[::1]x", b"a b", b"a/b", b"\xe9", b":80", b"a:"):
        assert name_in(wrong) is None


def test_the_gate_is_part_of_the_application(tmp_path: Path) -> None:
    assert Guard in [each.cls for each in app.user_middleware]
