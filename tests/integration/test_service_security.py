"""A coordinator with tokens, and one without: who gets in, as what, and what never leaks."""

import http.client
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.parse import unquote

import pytest

from flashruntime.client import CoordinatorClient
from flashruntime.credentials import digest_of, new_token
from flashruntime.errors import AccessDenied, CoordinatorUnreachable, TokenRefused
from flashruntime.protocol.jobs import JobSpec
from flashruntime.protocol.nodes import NodeRegistration
from flashruntime.protocol.tasks import ClaimRequest, CompleteRequest, Lease, OutputFile
from flashruntime.service.rules import RULES, Access
from flashruntime.testing import CoordinatorProcess, free_port

pytestmark = pytest.mark.integration
ROOT = Path(__file__).resolve().parents[2]
OPERATOR, POOL, OTHER, LATER = (new_token() for _ in range(4))
TOKENS = {"alice": OPERATOR, "pool": POOL, "other": OTHER}
JSON = {"Content-Type": "application/json"}
PATIENCE_S = 30.0

# Every one can stand in a request line; what may not is refused by the server's parser.
ATTACKS = [
    "..%2f..%2fetc%2fpasswd",
    "%2e%2e",
    "%2e%2e%2f",
    "..%5c..%5cx",
    "%00",
    "job-1%00",
    "%ff",
    "%c0%ae%c0%ae",
    "a%0Ab",
    "a%0d%0aX-Injected:%201",
    "%F0%9F%92%A9",
    "cafe%CC%81",
    "%E2%80%AE",
    "%ED%A0%80",
    "a" * 300,
    "%25%32%65",
    "' OR 1=1 --".replace(" ", "%20"),
    "{0.__class__}",
    "{job_id}",
    "%7B%7B7*7%7D%7D",
    "$(id)",
    "-1",
    "9" * 200,
    "null",
]


def token_lines(**tokens: str) -> str:
    roles = {"alice": "operator"}
    return "".join(
        f"{roles.get(name, 'worker')} {name} sha256:{digest_of(token).hex()}\n"
        for name, token in tokens.items()
    )


def place(path: Path, text: str) -> None:
    part = path.with_suffix(".part")
    part.write_text(text)
    part.chmod(0o600)
    part.replace(path)


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CoordinatorProcess]:
    root = tmp_path_factory.mktemp("closed")
    place(root / "tokens", token_lines(**TOKENS))
    with CoordinatorProcess(root, {"FLASHML_TOKENS_FILE": str(root / "tokens")}) as process:
        yield process


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CoordinatorProcess]:
    with CoordinatorProcess(tmp_path_factory.mktemp("opened")) as process:
        yield process


def as_(process: CoordinatorProcess, token: str | None) -> CoordinatorClient:
    return CoordinatorClient(process.url, token=token)


def ask(
    process: CoordinatorProcess,
    method: str,
    path: str,
    body: bytes | None = None,
    headers: dict[str, str] | None = None,
) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", process.port, timeout=10)
    try:
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def spec(**parameters: Any) -> JobSpec:
    workload = {"type": "command", "parameters": {"command": ["true"], **parameters}}
    return JobSpec.model_validate(
        {
            "apiVersion": "flashml.dev/v1alpha1",
            "kind": "Job",
            "metadata": {"name": "j"},
            "spec": {"workload": workload},
        }
    )


def leased(process: CoordinatorProcess, node_id: str, token: str) -> Lease:
    with as_(process, OPERATOR) as operator, as_(process, token) as worker:
        job = operator.submit(spec())
        lease = worker.claim(ClaimRequest(node_id=node_id, job_id=job.job_id))
    assert lease is not None
    return lease


def filled(path: str, value: str) -> str:
    for name in ("{job_id}", "{node_id}", "{lease_id}", "{key:anytext}"):
        path = path.replace(name, value)
    return path


@pytest.mark.parametrize("rule", RULES)
def test_l11_no_route_but_health_answers_without_a_token(
    closed: CoordinatorProcess, rule: str
) -> None:
    method, path = rule.split()
    status, body = ask(closed, method, filled(path, "x"), b"{}" if method != "GET" else None, JSON)
    if RULES[rule] is Access.OPEN:
        assert status == 200
    else:
        assert status == 401
        assert method == "HEAD" or json.loads(body)["code"] == "unauthorized"


def test_a_worker_runs_a_task_from_claim_to_result_and_reads_no_jobs(
    closed: CoordinatorProcess,
) -> None:
    lease = leased(closed, "pool-1", POOL)
    with as_(closed, POOL) as worker:
        worker.register(NodeRegistration(node_id="pool-1"))
        worker.node_heartbeat("pool-1")
        worker.heartbeat(lease.lease_id)
        worker.append_log(lease.lease_id, 0, b"line\n")
        record = worker.put_artifact(f"{lease.output_prefix}/out", b"x")
        output = OutputFile(path="out", key=record.object_key, sha256=record.sha256)
        assert worker.complete(lease.lease_id, CompleteRequest(outputs=[output])).accepted
        for call in (worker.jobs, worker.nodes, lambda: worker.cancel(lease.job_id)):
            with pytest.raises(AccessDenied, match="'pool' is no operator"):
                call()
        with pytest.raises(AccessDenied, match="output_prefix"):
            worker.put_artifact("inputs/planted", b"x")
    with as_(closed, OPERATOR) as operator:
        assert operator.job(lease.job_id).state.value == "SUCCEEDED"
        with pytest.raises(AccessDenied, match="no worker"):
            operator.heartbeat(lease.lease_id)


def test_a_worker_acts_only_as_itself_also_after_a_restart(closed: CoordinatorProcess) -> None:
    lease = leased(closed, "pool-1", POOL)
    closed.kill()
    closed.start()
    with as_(closed, OTHER) as other, as_(closed, POOL) as pool:
        attempts = (
            lambda: other.heartbeat(lease.lease_id),
            lambda: other.append_log(lease.lease_id, 0, b"x"),
            lambda: other.put_artifact(f"{lease.output_prefix}/out", b"x"),
            lambda: other.complete(lease.lease_id, CompleteRequest(outputs=[])),
            lambda: other.register(NodeRegistration(node_id="pool-1")),
            lambda: other.claim(ClaimRequest(node_id="pool-1")),
            lambda: other.node_heartbeat("pool-1"),
        )
        for attempt in attempts:
            with pytest.raises(AccessDenied, match="acts as other, other-"):
                attempt()
        assert pool.complete(lease.lease_id, CompleteRequest(outputs=[])).accepted


def test_tokens_are_replaced_without_a_restart_and_a_broken_file_changes_nothing(
    closed: CoordinatorProcess,
) -> None:
    file = closed.root / "tokens"
    with as_(closed, OPERATOR) as old, as_(closed, LATER) as new:
        with pytest.raises(TokenRefused, match="FLASHML_TOKEN"):
            new.nodes()
        place(file, "operator alice\n")
        until_logged(closed, "tokens_refused", old.nodes)
        old.nodes()
        place(file, token_lines(**TOKENS | {"alice": LATER}))
        until(lambda: works(new))
        with pytest.raises(TokenRefused):
            old.nodes()
        place(file, token_lines(**TOKENS))
        until(lambda: works(old))


def works(client: CoordinatorClient) -> bool:
    try:
        client.nodes()
    except TokenRefused:
        return False
    return True


def until(look: Any) -> None:
    """Look again and again; each look asks the coordinator, which sees the file at most then."""
    deadline = monotonic() + PATIENCE_S
    while not look():
        assert monotonic() < deadline


def until_logged(process: CoordinatorProcess, event: str, call: Any) -> None:
    until(lambda: (call(), f'"{event}"' in process.log.read_text())[1])


def test_a_worker_process_with_a_token_runs_a_job_that_does_not_see_it(
    closed: CoordinatorProcess, tmp_path: Path
) -> None:
    """Neither its environment nor any command line holds it, nor what the worker prints."""
    token_file = tmp_path / "token"
    place(token_file, POOL + "\n")
    code = "import os; print('ENV', sorted(os.environ.items()), open('/proc/self/cmdline').read())"
    env = {
        **{name: value for name, value in os.environ.items() if not name.startswith("FLASHML_")},
        "PYTHONPATH": str(ROOT),
        "FLASHML_COORDINATOR_URL": closed.url,
        "FLASHML_CHECKPOINT_ROOT": str(tmp_path / "checkpoints"),
        "FLASHML_WORK_DIR": str(tmp_path / "work"),
        "FLASHML_NODE_ID": "pool-9",
        "FLASHML_TOKEN_FILE": str(token_file),
    }
    with as_(closed, OPERATOR) as operator, (tmp_path / "worker.log").open("wb") as log:
        job = operator.submit(spec(command=[sys.executable, "-c", code]))
        worker = subprocess.Popen(
            [sys.executable, "-m", "flashruntime", "work"], env=env, stdout=log, stderr=log
        )
        try:
            until(lambda: operator.job(job.job_id).state.terminal)
            command_line = Path(f"/proc/{worker.pid}/cmdline").read_bytes()
        finally:
            worker.terminate()
            worker.wait(PATIENCE_S)
        assert operator.job(job.job_id).state.value == "SUCCEEDED"
        printed = operator.logs(job.job_id)
    assert "ENV" in printed
    for text in (printed, command_line.decode(), (tmp_path / "worker.log").read_text()):
        assert POOL not in text
        assert "FLASHML_TOKEN" not in text


def test_a_worker_whose_token_is_refused_says_so_and_does_not_spin(
    closed: CoordinatorProcess, tmp_path: Path
) -> None:
    before = closed.log.read_text().count('"status": 401')
    env = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "FLASHML_COORDINATOR_URL": closed.url,
        "FLASHML_CHECKPOINT_ROOT": str(tmp_path / "checkpoints"),
        "FLASHML_WORK_DIR": str(tmp_path / "work"),
        "FLASHML_TOKEN": new_token(),
    }
    worker = subprocess.Popen(
        [sys.executable, "-m", "flashruntime", "work"], env=env, stdout=subprocess.PIPE, text=True
    )
    assert worker.stdout is not None
    for line in worker.stdout:
        if "token_refused" in line:
            break
    worker.terminate()
    rest, _ = worker.communicate(timeout=PATIENCE_S)
    assert "FLASHML_TOKEN_FILE" in line
    assert worker.returncode == 0
    assert env["FLASHML_TOKEN"] not in line + rest
    assert closed.log.read_text().count('"status": 401') - before <= 2


def test_the_command_line_explains_a_missing_token(closed: CoordinatorProcess) -> None:
    words = ["jobs", "--coordinator", closed.url]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "flashruntime", *words]
    without = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert without.returncode == 1
    assert "set FLASHML_TOKEN or FLASHML_TOKEN_FILE" in without.stderr
    env["FLASHML_TOKEN"] = OPERATOR
    assert subprocess.run(command, env=env, capture_output=True, check=False).returncode == 0


def test_no_token_is_in_what_the_coordinator_printed(closed: CoordinatorProcess) -> None:
    """Runs last of those with tokens: all that was asked above is in the log."""
    printed = closed.log.read_text() + closed.errors.read_text()
    assert '"status": 401' in printed
    for token in (*TOKENS.values(), LATER):
        assert token not in printed
        assert digest_of(token).hex() not in printed


TEMPLATES = sorted(rule for rule in RULES if "_id}" in rule or "{key" in rule)


@pytest.mark.parametrize("rule", TEMPLATES)
def test_l14_no_text_in_a_path_does_more_than_be_refused(
    opened: CoordinatorProcess, rule: str
) -> None:
    """Traversal, NUL, odd Unicode, injections and formats, in every parameter of every path."""
    method, path = rule.split()
    body = None if method in {"GET", "HEAD"} else b'{"reason": "x", "outputs": []}'
    for attack in ATTACKS:
        status, answer = ask(opened, method, filled(path, attack) + "?offset=0", body, JSON)
        if "{key" in path and status == 200:
            assert method == "PUT"
            continue
        assert 400 <= status < 500, (attack, status, answer)
        assert method == "HEAD" or json.loads(answer)["detail"]
    for line in opened.log.read_text().splitlines():
        assert "trace" not in json.loads(line)


@pytest.mark.parametrize("text", ["{job_id}", "{0}", "%25s", "%7B%7B7*7%7D%7D", "$%28id%29"])
def test_l12_what_a_path_says_is_never_formatted(opened: CoordinatorProcess, text: str) -> None:
    _, answer = ask(opened, "GET", f"/v1alpha1/jobs/{text}")
    assert unquote(text) in json.loads(answer)["detail"]


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Content-Type": "multipart/form-data; boundary=x"},
        {},
    ],
)
def test_a_form_of_another_site_cannot_pass_as_json(
    opened: CoordinatorProcess, headers: dict[str, str]
) -> None:
    """What a page can send without being asked has none of JSON's content types."""
    body = spec().model_dump_json().encode()
    for path in ("/v1alpha1/jobs", "/v1alpha1/nodes/register", "/v1alpha1/leases/claim"):
        status, answer = ask(opened, "POST", path, body, headers)
        assert (status, b"Content-Type: application/json" in answer) == (422, True)
    status, _ = ask(opened, "POST", "/v1alpha1/jobs", body, {**JSON, "Origin": "http://evil"})
    assert status == 403
    assert ask(opened, "POST", "/v1alpha1/jobs", body, JSON)[0] == 201


def test_a_body_has_a_limit_by_what_its_length_says_and_while_it_is_read(
    opened: CoordinatorProcess,
) -> None:
    size = 9_000_000
    path = "/v1alpha1/nodes/register"
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    stated = f"{head}Content-Length: {size}\r\n\r\n".encode()
    chunk = b"%x\r\n" % size + b" " * size + b"\r\n0\r\n\r\n"
    chunked = f"{head}Transfer-Encoding: chunked\r\n\r\n".encode() + chunk
    for request in (stated, chunked):
        with socket.create_connection(("127.0.0.1", opened.port), timeout=10) as connection:
            connection.sendall(request)
            assert connection.recv(64).startswith(b"HTTP/1.1 413 ")
    assert ask(opened, "POST", "/v1alpha1/jobs", b" " * size, JSON)[0] == 422


def test_a_name_that_is_not_the_coordinators_gets_no_answer(opened: CoordinatorProcess) -> None:
    for host, status in (("evil.example", 403), ("localhost", 200), ("127.0.0.1:1", 200)):
        assert ask(opened, "GET", "/v1alpha1/jobs", headers={"Host": host})[0] == status
    with socket.create_connection(("127.0.0.1", opened.port), timeout=10) as connection:
        connection.sendall(b"GET /v1alpha1/jobs HTTP/1.0\r\n\r\n")
        assert b" 403 " in connection.recv(64)
    with socket.create_connection(("127.0.0.1", opened.port), timeout=10) as connection:
        connection.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
        assert b" 200 " in connection.recv(64)


def own_address() -> str | None:
    """Return an address of this machine that is not loopback; nothing is sent to find it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return None
        found = str(probe.getsockname()[0])
    return None if found.startswith("127.") else found


@pytest.mark.parametrize(("allow", "status"), [("0", 403), ("1", 200)])
def test_a_bare_uvicorn_on_every_address_serves_this_machine_only_unless_told(
    tmp_path: Path, allow: str, status: int
) -> None:
    address = own_address()
    if address is None:
        pytest.skip("this machine has no address but loopback")
    port = free_port()
    env = os.environ | {
        "FLASHML_LEDGER_DIR": str(tmp_path / "ledger"),
        "FLASHML_ARTIFACT_DIR": str(tmp_path / "artifacts"),
        "FLASHML_ALLOW_OPEN": allow,
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-m", "uvicorn", "flashruntime.service.app:app"]
    command += ["--host", "0.0.0.0", "--port", str(port)]  # noqa: S104 (what is tested)
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, env=env, stdout=log, stderr=log)
    try:
        with CoordinatorClient(f"http://127.0.0.1:{port}") as client:
            until(client.healthy)
            assert client.jobs() == []
        connection = http.client.HTTPConnection(address, port, timeout=10)
        connection.request("GET", "/v1alpha1/jobs")
        answer = connection.getresponse()
        assert answer.status == status
        assert status == 200 or b"FLASHML_ALLOW_OPEN" in answer.read()
        connection.close()
    finally:
        process.kill()
        process.wait()


def test_one_caller_cannot_hold_every_request_open(tmp_path: Path) -> None:
    """Claims that wait fill its share; the next one is told to come later, health still answers."""
    with (
        CoordinatorProcess(tmp_path, {"FLASHML_MAX_OPEN_REQUESTS": "4"}) as process,
        ThreadPoolExecutor(3) as threads,
        process.client() as client,
    ):
        requests = [ClaimRequest(node_id=f"n{number}", wait_s=30) for number in range(3)]
        waiting = [threads.submit(client.claim, request) for request in requests]
        until(lambda: ask(process, "GET", "/v1alpha1/jobs")[0] == 429)
        assert client.healthy()
        status, body = ask(process, "GET", "/v1alpha1/jobs")
        assert (status, b"this caller has 3 requests open" in body) == (429, True)
        process.stop()
        ended = [each.exception() for each in waiting]
        assert {type(error) for error in ended} <= {type(None), CoordinatorUnreachable}
