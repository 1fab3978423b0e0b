"""Containers of one run, through the Docker SDK: found by label, never touched without ours."""

import json
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docker import DockerClient
from docker.errors import APIError, DockerException, NotFound
from requests.exceptions import RequestException

from chaos.model import HarnessError

OWNER = "dev.flashruntime.owner=flashruntime"
RUN_KEY = "dev.flashruntime.run"
SERVICE_KEY = "com.docker.compose.service"
CALL_TIMEOUT_S = 20.0
POLL_S = 0.02


class EngineError(HarnessError):
    """The Docker engine did not do what was asked."""


class NotOurs(EngineError):
    """The target does not carry the label of this run."""


@dataclass(frozen=True, slots=True)
class ContainerState:
    """A container as the engine sees it; `exit_code` counts only where `status` is `exited`."""

    container_id: str
    name: str
    service: str
    status: str
    exit_code: int
    started_at: str
    pid: int


@dataclass(frozen=True, slots=True)
class DeathEvent:
    """The engine's `die` event, its wall-clock stamp carried over to CLOCK_MONOTONIC."""

    container_id: str
    exit_code: int
    t_ns: int
    wall_ns: int


def connect() -> DockerClient:
    """Return a client of the configured engine; raise EngineError with the remedy."""
    try:
        client = DockerClient.from_env(timeout=CALL_TIMEOUT_S)
        client.ping()
    except (DockerException, RequestException, OSError) as error:
        raise EngineError(
            f"no Docker engine answers ({error}); start one, or run `make chaos`, which does"
        ) from error
    return client


class ContainerSet:
    """The containers that carry the label of one run."""

    def __init__(self, client: DockerClient, run_id: str) -> None:
        self._client = client
        self._run_id = run_id

    def all(self) -> list[ContainerState]:
        """Return every container of the run, stopped ones too, by service."""
        labels = [OWNER, f"{RUN_KEY}={self._run_id}"]
        found = self._client.containers.list(
            all=True, filters={"label": labels}, ignore_removed=True
        )
        return sorted((_state(c.attrs) for c in found), key=lambda s: (s.service, s.name))

    def service(self, name: str) -> ContainerState:
        """Return the one container of a compose service; raise EngineError unless exactly one."""
        found = [state for state in self.all() if state.service == name]
        if len(found) != 1:
            raise EngineError(f"service {name!r} of run {self._run_id} has {len(found)} containers")
        return found[0]

    def state(self, container_id: str) -> ContainerState:
        """Return the state of a container of the run; raise NotOurs for any other."""
        try:
            attrs = self._client.api.inspect_container(container_id)
        except NotFound as error:
            raise EngineError(f"container {container_id[:12]} does not exist") from error
        labels = attrs["Config"]["Labels"] or {}
        key, owner = OWNER.split("=")
        if labels.get(key) != owner or labels.get(RUN_KEY) != self._run_id:
            raise NotOurs(
                f"container {container_id[:12]} does not carry {OWNER} and "
                f"{RUN_KEY}={self._run_id}: refused"
            )
        return _state(attrs)

    def kill(self, container_id: str, signal: str = "SIGKILL") -> int:
        """Signal the container's first process; return CLOCK_MONOTONIC ns of the call.

        Only an id that `state` has just accepted should be given where the time counts: the label
        is not read again here.
        """
        t_ns = time.monotonic_ns()
        try:
            self._client.api.kill(container_id, signal)
        except APIError as error:
            raise EngineError(f"kill of {container_id[:12]}: {error.explanation}") from error
        return t_ns

    def death(self, container_id: str, since_wall_ns: int, timeout_s: float) -> DeathEvent | None:
        """Return the first `die` event of a container since then, or None at the deadline."""
        until = time.time() + timeout_s
        events = self._client.api.events(
            since=f"{since_wall_ns // 10**9}.{since_wall_ns % 10**9:09}",
            until=f"{until:.9f}",
            filters={"container": container_id, "event": "die"},
            decode=True,
        )
        with closing(events):
            for event in events:
                offset_ns = time.monotonic_ns() - time.time_ns()
                wall_ns = int(event["timeNano"])
                exit_code = int(event["Actor"]["Attributes"].get("exitCode", -1))
                return DeathEvent(container_id, exit_code, wall_ns + offset_ns, wall_ns)
        return None

    def start(self, service: str) -> ContainerState:
        """Start the container of a service, unpausing it first; harmless where it runs."""
        state = self.service(service)
        if state.status == "paused":
            self._client.api.unpause(state.container_id)
        elif state.status != "running":
            self._client.api.start(state.container_id)
        return self.state(state.container_id)

    def unpause_all(self) -> int:
        """Unpause every paused container of the run; return how many there were."""
        paused = [state for state in self.all() if state.status == "paused"]
        for state in paused:
            self._client.api.unpause(state.container_id)
        return len(paused)

    def save_logs(self, folder: Path) -> None:
        """Write each container's output to `<folder>/<service or name>.log`."""
        folder.mkdir(parents=True, exist_ok=True)
        for state in self.all():
            path = folder / f"{state.service or state.name}.log"
            with path.open("ab") as stream:
                stream.writelines(
                    self._client.api.logs(state.container_id, stream=True, follow=False)
                )

    def run_script(self, container_id: str, source: str, request: dict[str, Any]) -> dict[str, Any]:
        """Run a script of `inside/` in a container and return the one JSON object it prints."""
        lines = list(self.script_lines(container_id, source, request))
        if len(lines) != 1:
            raise EngineError(f"helper script printed {len(lines)} lines, not one")
        return lines[0]

    def script_lines(
        self, container_id: str, source: str, request: dict[str, Any]
    ) -> Iterator[dict[str, Any]]:
        """Run a script of `inside/` and yield each JSON line as it comes."""
        command = ["python3", "-I", "-c", source, json.dumps(request, allow_nan=False)]
        api = self._client.api
        exec_id = api.exec_create(container_id, command)["Id"]
        errors, pending = b"", b""
        with closing(api.exec_start(exec_id, stream=True, demux=True)) as output:
            for out, err in output:
                errors += err or b""
                *lines, pending = (pending + (out or b"")).split(b"\n")
                yield from map(json.loads, lines)
        code = api.exec_inspect(exec_id)["ExitCode"]
        if code != 0:
            text = errors.decode(errors="replace").strip().splitlines()
            raise EngineError(f"helper script ended with {code}: {text[-1] if text else 'silent'}")


def _state(attrs: dict[str, Any]) -> ContainerState:
    """Translate `docker inspect`."""
    state, labels = attrs["State"], attrs["Config"]["Labels"] or {}
    return ContainerState(
        container_id=attrs["Id"],
        name=attrs["Name"].lstrip("/"),
        service=labels.get(SERVICE_KEY, ""),
        status=state["Status"],
        exit_code=int(state["ExitCode"]),
        started_at=state["StartedAt"],
        pid=int(state["Pid"]),
    )
