"""The containers of one run: found by label, and never touched without it."""

import time
from contextlib import closing
from pathlib import Path
from typing import Any

from docker import DockerClient
from docker.errors import APIError, NotFound
from docker.models.containers import Container as DockerContainer
from pydantic import BaseModel

from chaos.model import CannotRun, Container, JsonMap, NoTarget, NotOurs
from chaos.ports import Death
from chaos.targets.engine import (
    OWNER,
    OWNER_KEY,
    ROLE_KEY,
    RUN_KEY,
    SERVICE_KEY,
    UndoAction,
    by_labels,
    explained,
)
from chaos.targets.helper import Helper, Reach

COORDINATOR = "coordinator"
PROXY = "toxiproxy"
FREEZE_S = 10.0
BUSY = "unable to freeze"
REAPING = Reach(volumes=(), network="none", user="0:0", host_processes=True, capabilities=("KILL",))


class Slain(BaseModel):
    """What inside/slay.py answers."""

    killed: int


class RunContainers:
    """The containers that carry the label of one run."""

    def __init__(self, client: DockerClient, run_id: str) -> None:
        self._client = client
        self._run_id = run_id
        self._reaper = Helper(client, run_id, "reaper", REAPING)

    def of_node(self, node_id: str) -> Container:
        """Return the service's container whose hostname or service the node id starts with.

        A helper in the network namespace of a worker has that worker's hostname too.
        """
        for found in self._all():
            if SERVICE_KEY not in found.labels:
                continue
            names = (found.attrs["Config"]["Hostname"], found.labels.get(SERVICE_KEY, ""))
            if any(name and f"{node_id}-".startswith(f"{name}-") for name in names):
                return self._value(found)
        raise NoTarget(f"no container of run {self._run_id} has the hostname of node {node_id}")

    def coordinator(self) -> Container:
        """Return the coordinator's container."""
        return self.service(COORDINATOR)

    def proxy(self) -> Container:
        """Return Toxiproxy's container."""
        return self.service(PROXY)

    def service(self, name: str) -> Container:
        """Return the one container of a service; raise NoTarget unless there is exactly one."""
        found = [c for c in self._all() if c.labels.get(SERVICE_KEY) == name]
        if len(found) != 1:
            raise NoTarget(f"service {name} of run {self._run_id} has {len(found)} containers")
        return self._value(found[0])

    def stopped(self) -> tuple[str, ...]:
        """Return what has ended of the run: service and exit code."""
        return tuple(
            f"{self._value(c).service} has exited with {c.attrs['State']['ExitCode']}"
            for c in self._all()
            if c.status == "exited"
        )

    def kill(self, container: Container, signal: str = "SIGKILL") -> None:
        """Send a signal; a container that is not running any more is no error.

        The labels are read before, not in the same instant as the signal: a caller that waits for
        a window of milliseconds resolves its target first.
        """
        self.refuse_foreign(container)
        try:
            self._client.api.kill(container.container_id, signal)
        except NotFound as error:
            raise NoTarget(f"container of {container.service} is gone") from error
        except APIError as error:
            if "is paused" in str(error.explanation):
                self._kill_paused(container, signal)
            elif error.status_code != 409:
                raise CannotRun(f"kill of {container.service}: {error.explanation}") from error

    def _kill_paused(self, container: Container, signal: str) -> None:
        """Some engines refuse to kill what is paused: let it go on, and kill it then."""
        with explained(f"kill of {container.service}, which is paused"):
            self._client.api.unpause(container.container_id)
            self._client.api.kill(container.container_id, signal)

    def pause(self, container: Container) -> None:
        """Freeze every process of a container; one that is not running cannot be.

        On a busy machine the kernel gives up on freezing now and then, and thaws: it is repeated.
        """
        self.refuse_foreign(container)
        deadline = time.monotonic() + FREEZE_S
        while True:
            try:
                with explained(f"pause of {container.service}"):
                    self._client.api.pause(container.container_id)
            except CannotRun as error:
                if BUSY not in str(error) or time.monotonic() >= deadline:
                    raise
            else:
                return

    def get_ready_to_kill(self) -> None:
        """Start the helper that `kill_frozen` needs."""
        self._reaper.start()

    def kill_frozen(self, container: Container) -> None:
        """Kill every process of a paused container before the engine thaws and ends it.

        The engine's own kill reaches the first one only; the others go on until that one is gone.
        """
        self.refuse_foreign(container)
        request: JsonMap = {"container_id": container.container_id}
        if self._reaper.run("slay", request, Slain).killed == 0:
            raise CannotRun(f"no process of {container.service} is seen by the helper container")
        self.kill(container)

    def running(self, container: Container) -> bool:
        """Whether it runs."""
        return bool(self._inspect(container)["State"]["Running"])

    def start(self, container: Container) -> None:
        """Start the service's container where it is not running, unpausing it where paused."""
        found = self._inspect(self.service(container.service))
        with explained(f"start of {container.service}"):
            if found["State"]["Paused"]:
                self._client.api.unpause(found["Id"])
            elif not found["State"]["Running"]:
                self._client.api.start(found["Id"])

    def wait_death(self, container: Container, since_ns: int, timeout_s: float) -> Death | None:
        """Return the engine's first `die` event after `since_ns`, None where there is none.

        The engine stamps wall-clock time; it is carried over to CLOCK_MONOTONIC when it is read.
        """
        since = time.time() - (time.monotonic_ns() - since_ns) / 1e9
        events = self._client.api.events(
            since=f"{since:.9f}",
            until=f"{time.time() + timeout_s:.9f}",
            filters={"container": container.container_id, "event": "die"},
            decode=True,
        )
        with closing(events):
            for event in events:
                age_ns = time.time_ns() - int(event["timeNano"])
                exit_code = int(event["Actor"]["Attributes"].get("exitCode", "-1"))
                return Death(exit_code, time.monotonic_ns() - age_ns)
        return None

    def published(self, service: str, port: int) -> int:
        """Return the port on 127.0.0.1 that leads to `port` of a running service."""
        attrs = self._inspect(self.service(service))
        bindings = attrs["NetworkSettings"]["Ports"].get(f"{port}/tcp") or []
        if not bindings:
            raise CannotRun(f"{service} publishes no port {port}; does it run?")
        return int(bindings[0]["HostPort"])

    def save_logs(self, folder: Path) -> None:
        """Write the output of every container to `<folder>/<service>.log`.

        What is no service of the composition (the helper) goes by its role, unless it said nothing.
        """
        folder.mkdir(parents=True, exist_ok=True)
        for found in self._all():
            service = found.labels.get(SERVICE_KEY)
            name = service or found.labels.get(ROLE_KEY) or found.name
            path = folder / f"{name}.log"
            with explained(f"logs of {name}"), path.open("wb") as stream:
                stream.writelines(found.logs(stream=True, follow=False))
            if service is None and path.stat().st_size == 0:
                path.unlink()

    def _all(self) -> list[DockerContainer]:
        with explained("list of containers"):
            found = self._client.containers.list(
                all=True, filters=by_labels(self._run_id), ignore_removed=True
            )
        return sorted(found, key=lambda container: str(container.name))

    def _inspect(self, container: Container) -> dict[str, Any]:
        try:
            with explained(f"inspection of {container.service}"):
                attrs: dict[str, Any] = self._client.api.inspect_container(container.container_id)
        except NotFound as error:
            raise NoTarget(f"container of {container.service} is gone") from error
        return attrs

    def refuse_foreign(self, container: Container) -> None:
        """Raise NotOurs unless it carries the labels of this run."""
        labels = self._inspect(container)["Config"]["Labels"] or {}
        if labels.get(OWNER_KEY) != OWNER or labels.get(RUN_KEY) != self._run_id:
            raise NotOurs(
                f"container {container.container_id[:12]} lacks the labels {OWNER_KEY}={OWNER} "
                f"and {RUN_KEY}={self._run_id}: refused"
            )

    @staticmethod
    def _value(found: DockerContainer) -> Container:
        labels = found.labels
        return Container(str(found.id), labels.get(SERVICE_KEY, ""), labels.get(RUN_KEY))


def _start_again(client: DockerClient, run_id: str, args: JsonMap) -> None:
    containers = RunContainers(client, run_id)
    try:
        containers.start(containers.service(str(args["service"])))
    except NoTarget:
        return


UNDOS: dict[str, UndoAction] = {"start_container": _start_again}
