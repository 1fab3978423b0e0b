"""The processes of one run's containers: through the engine, and from the host's side.

What needs the host's numbers (signals to one process, counters of a control group) is done by a
helper container that sees the host's processes; it refuses those of other containers.
"""

import time
from contextlib import closing
from typing import Any

from docker import DockerClient
from docker.errors import NotFound
from pydantic import BaseModel, JsonValue

from chaos.model import CannotRun, Container, JsonMap, NoTarget
from chaos.ports.processes import ContainerState, Process, Told, Usage
from chaos.targets.containers import RunContainers
from chaos.targets.engine import UndoAction, explained
from chaos.targets.helper import READ_ONLY, Helper, Reach

PERIOD_US = 100_000
NO_QUOTA = -1
EVIDENCE = f"{READ_ONLY}/.evidence"
TELLS_LATE_S = 5.0
TOLD = {"kill", "die", "pause", "unpause", "stop", "start", "restart", "oom"}
REACH = Reach(
    volumes=(),
    network="none",
    user="0:0",
    host_processes=True,
    capabilities=("KILL", "SYS_PTRACE"),
)


class Answer(BaseModel):
    """What inside/processes.py answers."""

    processes: list[dict[str, Any]] = []
    usage: dict[str, int | None] = {}
    sent: bool = False


class EvidenceAnswer(BaseModel):
    """What inside/evidence.py answers."""

    evidence: dict[str, JsonValue] | None


class RunProcesses:
    """The processes of the containers that carry the label of one run."""

    def __init__(
        self, client: DockerClient, run_id: str, containers: RunContainers, volumes: Helper
    ) -> None:
        self._api = client.api
        self._containers = containers
        self._volumes = volumes
        self._host = Helper(client, run_id, "processes", REACH)

    def state(self, container: Container) -> ContainerState:
        """Return what the engine knows of the service's container now."""
        attrs = self._inspect(container)
        state = attrs["State"]
        return ContainerState(
            pid=int(state["Pid"]),
            started_at=str(state["StartedAt"]),
            restarts=int(attrs["RestartCount"]),
            running=bool(state["Running"]),
            paused=bool(state["Paused"]),
        )

    def told(
        self, container: Container, since_ns: int, until: str | None = None
    ) -> tuple[Told, ...]:
        """Return what the engine said of a container since then, in order.

        It stamps wall-clock time, carried over to CLOCK_MONOTONIC when it is read, and tells a
        little late: `until` names what is waited for, some seconds at most.
        """
        found: list[Told] = []
        late_s = TELLS_LATE_S if until is not None else 0.0
        ahead_s = time.time() - time.monotonic_ns() / 1e9
        events = self._api.events(
            since=f"{ahead_s + since_ns / 1e9:.9f}",
            until=f"{time.time() + late_s:.9f}",
            filters={"container": self._service(container).container_id, "type": "container"},
            decode=True,
        )
        with closing(events):
            for event in events:
                if event.get("Action") in TOLD:
                    found.append(_told(event, ahead_s))
                if event.get("Action") == until:
                    break
        return tuple(sorted(found, key=lambda each: each.at_ns))

    def stop(self, container: Container, grace_s: int) -> None:
        """Ask it to end, as the engine does, and return when it has ended."""
        self._containers.refuse_foreign(container)
        with explained(f"stop of {container.service}"):
            self._api.stop(container.container_id, timeout=grace_s)

    def restart(self, container: Container, grace_s: int) -> None:
        """Stop it and start it, in one call of the engine."""
        self._containers.refuse_foreign(container)
        with explained(f"restart of {container.service}"):
            self._api.restart(container.container_id, timeout=grace_s)

    def listing(self, container: Container) -> tuple[Process, ...]:
        """Return its processes, its first one first; none where it does not run."""
        root = self.state(container).pid
        if not root:
            return ()
        answer = self._host.run("processes", {"verb": "list", "root": root}, Answer)
        return tuple(Process(**found) for found in answer.processes)

    def signal(self, container: Container, pid: int, signal: str) -> bool:
        """Send a signal to one process by its number on the host; False where it is gone."""
        self._containers.refuse_foreign(container)
        root = self.state(container).pid
        request: JsonMap = {"verb": "signal", "root": root, "pid": pid, "signal": signal}
        return bool(root) and self._host.run("processes", request, Answer).sent

    def usage(self, container: Container) -> Usage:
        """Read the counters of its control group; nothing is known of one that does not run."""
        root = self.state(container).pid
        if not root:
            return Usage(None, None, None, None)
        answer = self._host.run("processes", {"verb": "usage", "root": root}, Answer)
        return Usage(**answer.usage)

    def limits(self, container: Container) -> JsonMap:
        """Return its limits of memory and CPU as the arguments of the undo `restore_limits`.

        The engine cannot take a limit of memory or swap away: none is as much as the machine has,
        and the same again of swap.
        """
        host = self._inspect(container)["HostConfig"]
        memory = int(host["Memory"]) or int(self._info("MemTotal"))
        swap = int(host["MemorySwap"] or 0)
        return {
            "service": container.service,
            "memory": memory,
            "memory_swap": swap if swap >= memory else 2 * memory,
            "cpu_quota": int(host["CpuQuota"]) or NO_QUOTA,
        }

    def limit_memory(self, container: Container, size_bytes: int) -> None:
        """Give it less memory while it runs, and no swap."""
        self._update(container, mem_limit=size_bytes, memswap_limit=size_bytes)

    def throttle(self, container: Container, cores: float) -> None:
        """Give it so much of one core's time while it runs."""
        self._update(container, cpu_period=PERIOD_US, cpu_quota=int(cores * PERIOD_US))

    def restore(self, args: JsonMap) -> None:
        """Give a service's container the limits of `limits` again; read them back."""
        container = self._containers.service(str(args["service"]))
        memory, swap = int(str(args["memory"])), int(str(args["memory_swap"]))
        quota = int(str(args["cpu_quota"]))
        self._update(container, cpu_quota=quota)
        self._update(container, mem_limit=memory, memswap_limit=swap)
        found = self._inspect(container)["HostConfig"]
        if (found["Memory"], found["CpuQuota"]) != (memory, quota):
            raise CannotRun(f"{container.service} keeps the limits of a fault: {found['Memory']}")

    def evidence(self, lease_id: str) -> JsonMap | None:
        """Return what the payload of an attempt wrote down of itself, None where it did not."""
        request: JsonMap = {"path": f"{EVIDENCE}/{lease_id}.json"}
        return self._volumes.run("evidence", request, EvidenceAnswer).evidence

    def _update(self, container: Container, **limits: int) -> None:
        self._containers.refuse_foreign(container)
        with explained(f"limits of {container.service}"):
            self._api.update_container(container.container_id, **limits)

    def _service(self, container: Container) -> Container:
        return self._containers.service(container.service)

    def _inspect(self, container: Container) -> dict[str, Any]:
        try:
            with explained(f"inspection of {container.service}"):
                found: dict[str, Any] = self._api.inspect_container(
                    self._service(container).container_id
                )
        except NotFound as error:
            raise NoTarget(f"container of {container.service} is gone") from error
        return found

    def _info(self, name: str) -> int:
        with explained("look at the engine"):
            return int(self._api.info()[name])


def _told(event: dict[str, Any], ahead_s: float) -> Told:
    attributes = event["Actor"]["Attributes"]
    numbers = {name: str(attributes.get(name, "")) for name in ("exitCode", "signal")}
    exit_code, signal = (int(n) if n.isdecimal() else None for n in numbers.values())
    at_ns = int(event["timeNano"]) - int(ahead_s * 1e9)
    return Told(str(event["Action"]), at_ns, exit_code, signal)


def _restore_limits(client: DockerClient, run_id: str, args: JsonMap) -> None:
    containers = RunContainers(client, run_id)
    processes = RunProcesses(client, run_id, containers, Helper(client, run_id))
    try:
        processes.restore(args)
    except NoTarget:
        return


UNDOS: dict[str, UndoAction] = {"restore_limits": _restore_limits}
