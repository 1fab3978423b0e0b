"""A typed HTTP client of the coordinator.

Every call has a timeout and can be repeated after a lost answer. Only `submit` repeats itself,
once and under the same idempotency key; all else raises and leaves the repetition to the caller.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.parse import quote
from uuid import uuid4

import httpx
from pydantic import BaseModel, ValidationError

from flashruntime.access import Access, Token, named, raise_for
from flashruntime.errors import ArtifactCorrupt, CoordinatorUnreachable, InvalidInput
from flashruntime.launch.files import replacing
from flashruntime.protocol.base import check_key
from flashruntime.protocol.events import EventPage
from flashruntime.protocol.jobs import JobPage, JobRecord, JobSpec
from flashruntime.protocol.nodes import (
    NodeHeartbeat,
    NodeOrder,
    NodePage,
    NodeRecord,
    NodeRegistered,
    NodeRegistration,
    NodeSession,
)
from flashruntime.protocol.tasks import (
    ArtifactPage,
    ArtifactRecord,
    ClaimRequest,
    CompleteAnswer,
    CompleteRequest,
    FailAnswer,
    FailRequest,
    HeartbeatRequest,
    Lease,
    LeaseStatus,
    LogSize,
    TaskPage,
    TaskRecord,
)
from flashruntime.session_stream import SessionLines

Model = TypeVar("Model", bound=BaseModel)

PREFIX = "/v1alpha1"
CHUNK_BYTES = 1024 * 1024
_IDLE_CONNECTION_S = 4.0
_JSON = {"Content-Type": "application/json"}


class CoordinatorClient:
    """Calls a coordinator; threads may share one.

    Raises CoordinatorUnreachable (no answer in time, or a 5xx), Superseded (410), Conflict (409),
    NotFound (404), TokenRefused (401), AccessDenied (403) and InvalidInput (any other 4xx), with
    the coordinator's own words. Proxy variables of the environment are not used; a `token` that
    is a callable is asked before each request.
    """

    def __init__(self, base_url: str, *, timeout_s: float = 10.0, token: Token = None) -> None:
        self.base_url = base_url.rstrip("/")
        self._timeout_s = timeout_s
        self._http = httpx.Client(
            base_url=self.base_url,
            timeout=timeout_s,
            trust_env=False,
            auth=Access(token),
            limits=httpx.Limits(keepalive_expiry=_IDLE_CONNECTION_S),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def healthy(self) -> bool:
        """Whether the coordinator answers and its store can be written."""
        try:
            return self._http.get("/readyz").status_code == 200
        except httpx.HTTPError:
            return False

    def submit(self, spec: JobSpec, idempotency_key: str | None = None) -> JobRecord:
        """Submit a job; the same key gives the same job, however often it is sent."""
        headers = {"Idempotency-Key": idempotency_key or uuid4().hex}
        try:
            return self._post("/jobs", spec, JobRecord, headers=headers)
        except CoordinatorUnreachable:
            return self._post("/jobs", spec, JobRecord, headers=headers)

    def job(self, job_id: str) -> JobRecord:
        """Return a job."""
        return self._get(f"/jobs/{_segment(job_id)}", JobRecord)

    def jobs(self, most: int | None = None) -> list[JobRecord]:
        """Return all jobs, or the newest `most`, newest first."""
        page = self._get("/jobs", JobPage)
        found = page.items
        while page.next is not None and (most is None or len(found) < most):
            page = self._get("/jobs", JobPage, after=page.next)
            found += page.items
        return found[:most]

    def tasks(self, job_id: str) -> list[TaskRecord]:
        """Return all tasks of a job in index order."""
        path = f"/jobs/{_segment(job_id)}/tasks"
        page = self._get(path, TaskPage)
        found = page.items
        while page.next is not None:
            page = self._get(path, TaskPage, after=page.next)
            found += page.items
        return found

    def events(self, job_id: str | None, after: int = 0, limit: int = 1000) -> EventPage:
        """Return up to `limit` events of a job (None: of all) with ids above `after`, in order."""
        path = "/events" if job_id is None else f"/jobs/{_segment(job_id)}/events"
        return self._get(path, EventPage, after=after, limit=limit)

    def logs(
        self,
        job_id: str,
        tail_lines: int = 200,
        task: int | None = None,
        attempt: int | None = None,
    ) -> str:
        """Return the last lines of the newest attempt of each task, or of the one named."""
        path = f"/jobs/{_segment(job_id)}/logs"
        query = _query(tail_lines=tail_lines, task=task, attempt=attempt)
        return self._send("GET", path, params=query).text

    def artifacts(self, job_id: str) -> list[ArtifactRecord]:
        """Return the objects that the accepted results of a job refer to."""
        return self._get(f"/jobs/{_segment(job_id)}/artifacts", ArtifactPage).items

    def cancel(self, job_id: str) -> JobRecord:
        """Cancel a job; a job that has ended stays as it is."""
        return self._post(f"/jobs/{_segment(job_id)}/cancel", None, JobRecord)

    def delete(self, job_id: str) -> None:
        """Delete a job that has ended, with all that it stored; Conflict while it is open."""
        self._send("DELETE", f"/jobs/{_segment(job_id)}")

    def register(self, registration: NodeRegistration) -> NodeRegistered:
        """Introduce a worker; each call opens a session of its own."""
        return self._post("/nodes/register", registration, NodeRegistered)

    def node_heartbeat(self, node_id: str, beat: NodeHeartbeat | None = None) -> NodeRecord:
        """Send a worker's sign of life."""
        path = f"/nodes/{_segment(node_id)}/heartbeat"
        return self._post(path, beat or NodeHeartbeat(), NodeRecord)

    @contextmanager
    def session(self, node_id: str, session_id: str) -> Iterator[SessionLines]:
        """Hold a session open; a line that is later than the client's timeout is no answer."""
        path = f"/nodes/{_segment(node_id)}/session"
        body = _json(NodeSession(session_id=session_id))
        with self._streamed("POST", path, content=body, headers=_JSON) as answer:
            yield SessionLines(answer)

    def nodes(self) -> list[NodeRecord]:
        """Return all known nodes."""
        return self._get("/nodes", NodePage).items

    def order_node(self, node_id: str, order: NodeOrder) -> NodeRecord:
        """Cordon, drain or uncordon a node; the same order again changes nothing."""
        return self._post(f"/nodes/{_segment(node_id)}/{order.value}", None, NodeRecord)

    def claim(self, request: ClaimRequest) -> Lease | None:
        """Ask for a task, waiting up to `request.wait_s`; None if there is none."""
        timeout_s = httpx.Timeout(self._timeout_s, read=self._timeout_s + request.wait_s)
        answer = self._send("POST", "/leases/claim", body=request, timeout=timeout_s)
        return None if answer.status_code == 204 else _parse(answer, Lease)

    def heartbeat(self, lease_id: str, request: HeartbeatRequest | None = None) -> LeaseStatus:
        """Renew a lease; Superseded means that the attempt must stop."""
        path = f"/attempts/{_segment(lease_id)}/heartbeat"
        return self._post(path, request or HeartbeatRequest(), LeaseStatus)

    def append_log(self, lease_id: str, offset: int, data: bytes) -> int:
        """Append output of an attempt at `offset` bytes; return how much the coordinator has.

        A repeated offset is harmless. After a gap the answer is less than `offset`: go on there.
        """
        path = f"/attempts/{_segment(lease_id)}/logs"
        answer = self._exchange("PUT", path, params={"offset": offset}, content=data)
        if not (answer.is_success or answer.status_code == 409):
            raise_for(answer)
        return _parse(answer, LogSize).size

    def complete(self, lease_id: str, request: CompleteRequest) -> CompleteAnswer:
        """Hand in the result of an attempt; a superseded one is answered, not accepted."""
        return self._post(f"/attempts/{_segment(lease_id)}/complete", request, CompleteAnswer)

    def fail(self, lease_id: str, request: FailRequest) -> FailAnswer:
        """Report that an attempt failed; return what the policy decided."""
        return self._post(f"/attempts/{_segment(lease_id)}/fail", request, FailAnswer)

    def put_artifact(self, key: str, source: Path | bytes) -> ArtifactRecord:
        """Upload bytes or a file under `key`; bytes that change on the way are refused.

        A file must not change while it is sent.
        """
        path = f"/artifacts/{_key(key)}"
        if isinstance(source, bytes):
            headers = {"X-Sha256": hashlib.sha256(source).hexdigest()}
            return _parse(self._send("PUT", path, content=source, headers=headers), ArtifactRecord)
        with source.open("rb") as file:
            headers = {"X-Sha256": hashlib.file_digest(file, "sha256").hexdigest()}
            headers["Content-Length"] = str(file.tell())
            file.seek(0)
            chunks = iter(partial(file.read, CHUNK_BYTES), b"")
            return _parse(self._send("PUT", path, content=chunks, headers=headers), ArtifactRecord)

    def get_artifact(self, key: str, to: Path, sha256: str | None = None) -> ArtifactRecord:
        """Download an object into the file `to`, which appears whole or not at all.

        Raises ArtifactCorrupt unless the bytes hash to the coordinator's digest, and to `sha256`.
        """
        with replacing(to) as part, self._streamed("GET", f"/artifacts/{_key(key)}") as answer:
            digest, size_bytes = hashlib.sha256(), 0
            for chunk in answer.iter_bytes(CHUNK_BYTES):
                digest.update(chunk)
                size_bytes += part.write(chunk)
            stated = answer.headers.get("ETag", "").strip('"')
            found = digest.hexdigest()
            if found != stated or (sha256 is not None and found != sha256.lower()):
                raise ArtifactCorrupt(
                    f"artifact {key!r}: received {size_bytes} bytes with sha256 {found}, the "
                    f"coordinator states {stated}, expected {sha256 or 'the same'}; fetch it again"
                )
        return ArtifactRecord(
            uri=f"{PREFIX}/artifacts/{_key(key)}",
            object_key=key,
            sha256=found,
            size_bytes=size_bytes,
        )

    @contextmanager
    def _streamed(self, method: str, path: str, **options: Any) -> Iterator[httpx.Response]:
        try:
            with self._http.stream(method, PREFIX + path, **options) as answer:
                if answer.status_code != 200:
                    answer.read()
                    raise_for(answer)
                yield answer
        except httpx.HTTPError as error:
            raise self._unreachable(method, path, error) from error

    def _get(self, path: str, model: type[Model], **query: str | int | None) -> Model:
        return _parse(self._send("GET", path, params=_query(**query)), model)

    def _post(
        self,
        path: str,
        body: BaseModel | None,
        model: type[Model],
        headers: dict[str, str] | None = None,
    ) -> Model:
        return _parse(self._send("POST", path, body=body, headers=headers), model)

    def _send(self, method: str, path: str, **options: Any) -> httpx.Response:
        answer = self._exchange(method, path, **options)
        if not answer.is_success:
            raise_for(answer)
        return answer

    def _exchange(
        self,
        method: str,
        path: str,
        *,
        body: BaseModel | None = None,
        headers: dict[str, str] | None = None,
        **options: Any,
    ) -> httpx.Response:
        if body is not None:
            options["content"] = _json(body)
            headers = {**_JSON, **(headers or {})}
        try:
            return self._http.request(method, PREFIX + path, headers=headers, **options)
        except httpx.HTTPError as error:
            raise self._unreachable(method, path, error) from error

    def _unreachable(self, method: str, path: str, error: Exception) -> CoordinatorUnreachable:
        return CoordinatorUnreachable(
            f"cannot reach {self.base_url}: {error or type(error).__name__}; check the address and "
            f"that the coordinator runs ({method} {path}{_asked(error)})"
        )


def _json(body: BaseModel) -> bytes:
    try:
        return body.model_dump_json().encode()
    except ValueError as error:
        raise InvalidInput(f"{type(body).__name__} cannot be written as JSON: {error}") from error


def _parse(answer: httpx.Response, model: type[Model]) -> Model:
    try:
        return model.model_validate_json(answer.content)
    except ValidationError as error:
        raise CoordinatorUnreachable(
            f"{answer.request.method} {answer.request.url}: the answer is not a "
            f"{model.__name__}; is this a coordinator of the same version? ({error})"
        ) from error


def _segment(identifier: str) -> str:
    if not identifier or identifier in {".", ".."}:
        raise InvalidInput(f"an id must not be {identifier!r}; take it from the coordinator")
    return quote(identifier, safe="")


def _key(key: str) -> str:
    try:
        return quote(check_key(key), safe="/")
    except ValueError as error:
        raise InvalidInput(str(error)) from error


def _query(**values: str | int | None) -> dict[str, str | int]:
    return {name: value for name, value in values.items() if value is not None}


def _asked(error: Exception) -> str:
    return f", {named(error.request)}" if isinstance(error, httpx.RequestError) else ""
