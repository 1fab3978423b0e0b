"""The composed stack of one run: `docker compose` as a subprocess, with ports of its own."""

import re
import socket
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

from chaos.model import CannotRun, ChaosError, Unreachable
from chaos.ports import Runtime
from chaos.targets import command
from chaos.targets.containers import COORDINATOR, RunContainers
from chaos.targets.helper import Helper
from chaos.targets.proxies import SERVICE as TOXIPROXY
from chaos.targets.proxies import ProxyNetwork

ROOT = Path(__file__).resolve().parents[2]
FILES = ("compose.yaml", "docker/compose.chaos.yaml")
LIMITED = "docker/compose.limits.yaml"
VARIANT = "docker/compose.{}.yaml"
FIRST = {"clock": "clock"}
"""Services that run to their end before anything else starts, by variant."""
PORT_VARIABLES = ("FLASHML_PORT", "FLASHML_CLIENTS_PORT", "FLASHML_TOXIPROXY_PORT")
PORT_TAKEN = re.compile(r"address already in use|port is already allocated", re.IGNORECASE)
NO_ADDRESSES = "non-overlapping IPv4 address pool"
PORT_TRIES = 3
MAX_WORKERS = 8
UP_TIMEOUT_S = 120.0
PROBE_TIMEOUT_S = 2.0


class PortTaken(CannotRun):
    """A port that was free a moment ago is taken."""


def worker_services(count: int) -> tuple[str, ...]:
    """Return the names of the services of `count` workers."""
    if not 1 <= count <= MAX_WORKERS:
        raise CannotRun(f"the chaos stack has 1 to {MAX_WORKERS} workers, not {count}")
    return tuple(f"worker-{number}" for number in range(1, count + 1))


def free_ports() -> dict[str, str]:
    """Return a port on 127.0.0.1 for each variable that nobody listens on at this moment."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in PORT_VARIABLES]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        ports = [str(each.getsockname()[1]) for each in sockets]
    return dict(zip(PORT_VARIABLES, ports, strict=True))


def compose(
    project: str,
    verb: tuple[str, ...],
    variables: Mapping[str, str],
    files: tuple[str, ...] = FILES,
) -> None:
    """Run one compose command; raise CannotRun with its last words, PortTaken for a port."""
    named = [word for name in files for word in ("--file", str(ROOT / name))]
    words = ["compose", "--ansi", "never", "--project-name", project]
    words += ["--project-directory", str(ROOT), *named, *verb]
    ended = command.run(words, variables, UP_TIMEOUT_S)
    if ended.exit_code != 0:
        raise failure(verb[0], ended)


def failure(verb: str, ended: command.Ended) -> CannotRun:
    """Return what a failed compose command means, with its remedy where one is known."""
    told = f"`docker compose {verb}` failed: {ended.last_words}"
    if PORT_TAKEN.search(ended.errors):
        return PortTaken(told)
    if NO_ADDRESSES in ended.errors:
        return CannotRun(
            f"{told}. The engine has no address range left for a network: `make heal` removes "
            "those that interrupted runs left, `docker network prune` all that nobody uses"
        )
    return CannotRun(told)


class ComposeStack:
    """The stack of one run: coordinator, Toxiproxy and some workers.

    Its `helpers` start with it: a volume in memory lives as long as a container has it.
    """

    def __init__(
        self,
        containers: RunContainers,
        network: ProxyNetwork,
        runtime: Runtime,
        helpers: tuple[Helper, ...],
        project: "Project",
    ) -> None:
        self._containers = containers
        self._network = network
        self._runtime = runtime
        self._helper = helpers[0]
        self._others = helpers[1:]
        self._project = project

    def up(self) -> None:
        """Start it, on other ports where one was snatched away; CannotRun says what to do."""
        self._project.up_on_free_ports()
        for helper in (self._helper, *self._others):
            helper.start()

    def unsteady(self) -> tuple[str, ...]:
        """Return what is not as it should be; probes run only where all else is well."""
        found = [*self._containers.stopped(), *self._unready(), *self._toxics()]
        return tuple(found or self._deaf())

    def save_logs(self, folder: Path) -> None:
        """Write the log of every container to a file in `folder`."""
        self._containers.save_logs(folder)

    def addresses(self) -> Mapping[str, str]:
        """Return what people may want to open."""
        api = self._containers.published(TOXIPROXY, 8474)
        port = self._containers.published(COORDINATOR, 8000)
        clients = self._containers.published(TOXIPROXY, 8100)
        return {
            "coordinator": f"http://127.0.0.1:{port}",
            "clients": f"http://127.0.0.1:{clients}",
            "toxiproxy": f"http://127.0.0.1:{api}",
            "compose project": self._project.name,
        }

    def _unready(self) -> list[str]:
        if not self._runtime.ready():
            return ["the coordinator is not ready"]
        try:
            nodes = self._runtime.nodes()
        except Unreachable as error:
            return [str(error)]
        homes = {self._home(node) for node in nodes}
        return [f"{name} is not connected" for name in self._project.workers if name not in homes]

    def _home(self, node_id: str) -> str:
        try:
            return self._containers.of_node(node_id).service
        except ChaosError:
            return ""

    def _toxics(self) -> list[str]:
        try:
            toxics = self._network.toxics()
        except CannotRun as error:
            return [str(error)]
        return [f"toxic {t.name} on {name}" for name, found in toxics.items() for t in found]

    def _deaf(self) -> list[str]:
        probes = {n: self._network.probe(n, PROBE_TIMEOUT_S) for n in self._project.workers}
        return [
            f"a probe through {name} ends with {probe.outcome}"
            for name, probe in probes.items()
            if probe.outcome != "ok"
        ]


class Project:
    """The compose project of one run."""

    def __init__(
        self,
        run_id: str,
        workers: int,
        images: Mapping[str, str],
        limits_mib: Mapping[str, int] | None = None,
        variants: tuple[str, ...] = (),
    ) -> None:
        self._first = [FIRST[name] for name in variants if name in FIRST]
        self.name = f"flashruntime-{run_id}".lower()
        self.workers = worker_services(workers)
        limits = {f"FLASHML_{name.upper()}_MIB": str(n) for name, n in (limits_mib or {}).items()}
        more = (*([LIMITED] if limits else []), *(VARIANT.format(name) for name in variants))
        self._files = (*FILES, *more)
        self._variables = {"FLASHML_RUN_ID": run_id, **images, **limits}

    def up_on_free_ports(self) -> None:
        """Create and start the containers, on other ports where one was snatched away."""
        for _ in range(PORT_TRIES - 1):
            with suppress(PortTaken):
                self._up(free_ports())
                return
        self._up(free_ports())

    def _up(self, ports: Mapping[str, str]) -> None:
        """Run compose; images are never built or pulled here."""
        told = {**self._variables, **ports}
        for service in self._first:
            compose(self.name, ("run", "--rm", "--no-deps", "-T", service), told, self._files)
        services = (COORDINATOR, TOXIPROXY, *self.workers)
        verb = ("up", "--detach", "--no-deps", "--no-build", "--pull", "never", *services)
        compose(self.name, verb, told, self._files)
