"""The system under test as its users see it: the one file here that knows flashruntime."""

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

from pydantic import BaseModel, JsonValue

from chaos.model import JobRequest, JobView, JsonMap, TaskView, Unreachable
from chaos.ports import Stored
from flashruntime.client import CoordinatorClient
from flashruntime.errors import CoordinatorUnreachable, FlashError
from flashruntime.protocol.events import Event
from flashruntime.protocol.jobs import (
    ArtifactPolicy,
    Checkpoints,
    CommandParameters,
    CommandWorkload,
    InputFile,
    JobMetadata,
    JobSection,
    JobSpec,
    Outputs,
    RetryPolicy,
)
from flashruntime.protocol.tasks import ArtifactRecord, TaskRecord

CALL_TIMEOUT_S = 5.0
PAGE = 1000
LOG_LINES = 200
SOURCE_PREFIX = "sources"
OUTPUT_PREFIX = "outputs"
METRICS = "metrics.json"
STATUS = re.compile(r": ([1-5][0-9]{2}) ")


class CoordinatorRuntime:
    """The coordinator's public API, on its direct port: no fault lies between.

    Jobs may be submitted on the path of the clients. Each address is asked for once, when the
    first call needs it.
    """

    def __init__(
        self, base_url: Callable[[], str], clients_url: Callable[[], str] | None = None
    ) -> None:
        self._base_url = base_url
        self._clients_url = clients_url or base_url
        self._cursors: dict[str, int] = {}
        self._events: list[Event] = []

    def ready(self) -> bool:
        """Whether the coordinator takes requests."""
        return self._client.healthy()

    def nodes(self) -> tuple[str, ...]:
        """Return the ids of the workers that hold their sessions open."""
        with _answering():
            return tuple(node.node_id for node in self._client.nodes() if node.connected)

    def submit(self, role: str, request: JobRequest) -> str:
        """Upload the files, submit the job and return its id."""
        with _answering():
            inputs = [self._upload(path, data) for path, data in sorted(request.files.items())]
        parameters = CommandParameters(
            command=list(request.command),
            env=dict(request.env),
            inputs=inputs,
            task_params=[dict(params) for params in request.task_params] or None,
            checkpoint=Checkpoints(keep=request.keep_checkpoints),
            outputs=Outputs(required=list(request.required_outputs), optional=[METRICS]),
            lease_seconds=request.lease_s,
            no_progress_s=request.no_progress_s,
        )
        section = JobSection(
            workload=CommandWorkload(type="command", parameters=parameters),
            retryPolicy=RetryPolicy(maxTaskAttempts=request.max_task_attempts),
            artifacts=ArtifactPolicy(outputPrefix=OUTPUT_PREFIX),
        )
        name = JobMetadata(name=f"{request.name}-{role}")
        spec = JobSpec(apiVersion="flashml.dev/v1alpha1", kind="Job", metadata=name, spec=section)
        client = self._through_proxy if request.through_proxy else self._client
        with _answering():
            job_id = client.submit(spec, idempotency_key=f"chaos-{role}").job_id
        self._cursors[job_id] = 0
        return job_id

    def job(self, role: str, job_id: str) -> JobView:
        """Return the job with its task, or with its tasks where it has several."""
        with _answering():
            state = self._client.job(job_id).state
            tasks = self._client.tasks(job_id)
        views = tuple(_task_view(task) for task in tasks)
        if len(views) > 1:
            return JobView(role, job_id, state.value, tasks=views)
        return JobView(role, job_id, state.value, views[0] if views else None)

    def events(self, after: int) -> tuple[JsonMap, ...]:
        """Return the events of the submitted jobs with an id above `after`, in order, as JSON.

        Jobs are asked one after the other. What the first round shows as newest existed before
        the second one began, so up to there nothing is missing from any job.
        """
        self._fetch()
        horizon = max([*self._cursors.values()], default=0)
        self._fetch()
        chosen = [event for event in self._events if after < event.id <= horizon]
        return tuple(_json(event) for event in sorted(chosen, key=lambda event: event.id))

    def events_again(self) -> tuple[JsonMap, ...]:
        """Return every event of the submitted jobs, asked for anew, in order, as JSON."""
        again = CoordinatorRuntime(self._base_url)
        again._cursors = dict.fromkeys(self._cursors, 0)
        again._fetch()
        return tuple(_json(event) for event in sorted(again._events, key=lambda event: event.id))

    def final(self, job_id: str) -> JsonMap:
        """Return the job, its tasks, artifacts (with what their bytes hash to), metrics, logs."""
        with _answering():
            tasks = self._client.tasks(job_id)
            with TemporaryDirectory(prefix="chaos-artifacts-") as folder:
                records = self._artifacts(job_id)
                found = [self._download(record, Path(folder)) for record in records]
            job = self._client.job(job_id)
            logs = self._client.logs(job_id, tail_lines=LOG_LINES) if len(tasks) == 1 else ""
        return {
            "job": _json(job),
            "tasks": [_json(task) for task in tasks],
            "artifacts": [described for described, _ in found],
            "metrics": next((metrics for _, metrics in found if metrics is not None), None),
            "logs": logs,
        }

    def store(self, key: str, data: bytes) -> Stored:
        """Upload bytes once, and return what was said to that."""
        try:
            self._client.put_artifact(key, data)
        except CoordinatorUnreachable as error:
            status = STATUS.search(str(error))
            return Stored(int(status[1]) if status else None, str(error), error.retry_after_s)
        except FlashError as error:
            status = STATUS.search(str(error))
            return Stored(int(status[1]) if status else None, str(error))
        return Stored(200)

    def fetch(self, key: str) -> str | None:
        """Return the sha256 of what a download of a key gave, None where it was refused."""
        with TemporaryDirectory(prefix="chaos-artifacts-") as folder:
            to = Path(folder) / "object"
            try:
                self._client.get_artifact(key, to)
            except FlashError:
                return None
            return hashlib.sha256(to.read_bytes()).hexdigest()

    def accepted(self) -> tuple[str, ...]:
        """Return the ids of all jobs that the coordinator has, whoever submitted them."""
        with _answering():
            return tuple(job.job_id for job in self._client.jobs())

    @cached_property
    def _through_proxy(self) -> CoordinatorClient:
        return CoordinatorClient(self._clients_url(), timeout_s=CALL_TIMEOUT_S)

    @cached_property
    def _client(self) -> CoordinatorClient:
        return CoordinatorClient(self._base_url(), timeout_s=CALL_TIMEOUT_S)

    def _artifacts(self, job_id: str) -> list[ArtifactRecord]:
        return sorted(self._client.artifacts(job_id), key=lambda record: record.object_key)

    def _upload(self, path: str, data: bytes) -> InputFile:
        digest = hashlib.sha256(data).hexdigest()
        record = self._client.put_artifact(f"{SOURCE_PREFIX}/{digest}/{path}", data)
        return InputFile(path=path, key=record.object_key, sha256=digest)

    def _fetch(self) -> None:
        for job_id in list(self._cursors):
            while items := self._page(job_id):
                self._events += items
                self._cursors[job_id] = items[-1].id

    def _page(self, job_id: str) -> list[Event]:
        with _answering():
            return self._client.events(job_id, after=self._cursors[job_id], limit=PAGE).items

    def _download(self, record: ArtifactRecord, folder: Path) -> tuple[JsonValue, JsonValue]:
        """Return an artifact as the history states it, and its content where it is metrics."""
        to = folder / "object"
        digest, metrics, problem = None, None, None
        try:
            self._client.get_artifact(record.object_key, to)
            digest = hashlib.sha256(to.read_bytes()).hexdigest()
            if record.object_key.endswith("/" + METRICS) or record.path == METRICS:
                metrics = json.loads(to.read_bytes())
        except (FlashError, OSError, ValueError) as error:
            problem = f"{type(error).__name__}: {error}"
        described: JsonValue = {
            "key": record.object_key,
            "sha256": record.sha256,
            "size_bytes": record.size_bytes,
            "accepted": record.accepted,
            "bytes_sha256": digest,
            "problem": problem,
        }
        return described, metrics


@contextmanager
def _answering() -> Iterator[None]:
    """Turn what the client raises into Unreachable: no answer that can be used."""
    try:
        yield
    except FlashError as error:
        raise Unreachable(f"the coordinator: {error}") from error


def _task_view(task: TaskRecord) -> TaskView:
    return TaskView(
        task_id=task.task_id,
        state=task.state.value,
        node_id=task.node_id,
        lease_id=task.lease_id,
        attempts=task.attempts,
        step=task.step,
    )


def _json(model: BaseModel) -> dict[str, JsonValue]:
    data: dict[str, JsonValue] = model.model_dump(mode="json")
    return data
