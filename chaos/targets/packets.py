"""Packet filters and networks of single containers, from helpers in their network namespaces.

A helper goes by the container and its start: a container that was started again has another
namespace, in which there is none of the old rules.
"""

import hashlib
import threading
from collections.abc import Iterable, Sequence
from typing import Any

from docker import DockerClient
from pydantic import BaseModel

from chaos.history import items, text
from chaos.model import CannotRun, Container, JsonMap, JsonValue, NoTarget
from chaos.ports import Canary, Counted, Rule
from chaos.targets.containers import RunContainers
from chaos.targets.engine import ROLE_KEY, SERVICE_KEY, UndoAction, by_labels, explained
from chaos.targets.helper import Helper, Reach
from chaos.targets.proxies import ProxyNetwork

ROLE = "packets"
NETWORK_KEY = "com.docker.compose.network"


class FilterAnswer(BaseModel):
    """What inside/packets.py answers."""

    chains: list[str]
    seen: int | None
    dropped: int | None


class NamespacePackets:
    """What one run may do to the packets of its containers."""

    def __init__(self, client: DockerClient, run_id: str, network: ProxyNetwork) -> None:
        self._client = client
        self._run_id = run_id
        self._network = network
        self._lock = threading.Lock()
        self._helpers: dict[str, Helper] = {}

    def drop(self, container: Container, rule: Rule) -> None:
        """Put a rule in place and read it back."""
        chain = chain_of(self._run_id, rule.name)
        request: JsonMap = {
            "do": "drop",
            "chain": chain,
            "flow": rule.flow,
            "probability": rule.probability,
        }
        if chain not in self._ask(container, request).chains:
            raise CannotRun(f"rule {rule.name} in {container.service} was set but is not there")

    def counted(self, container: Container, name: str) -> Counted | None:
        """Return the counters of a rule, None where there is no such rule."""
        request: JsonMap = {"do": "count", "chain": chain_of(self._run_id, name)}
        answer = self._ask(container, request)
        if answer.seen is None or answer.dropped is None:
            return None
        return Counted(answer.seen, answer.dropped)

    def clear(self, container: Container) -> None:
        """Take away every rule of this run."""
        clear(self._helper(container), self._run_id)

    def canaries(
        self, container: Container, listener: str, times: int, timeout_s: float
    ) -> tuple[Canary, ...]:
        """Make requests from the container's own place in the network."""
        return self._network.canaries(self._helper(container), listener, times, timeout_s)

    def attachments(self, container: Container) -> Sequence[JsonMap]:
        """Return each network that it is in now: its name in the project, aliases, address."""
        found = _inspect(self._client, container)["NetworkSettings"]["Networks"]
        return [self._attachment(name, endpoint) for name, endpoint in sorted(found.items())]

    def detach(self, container: Container) -> None:
        """Take it out of all its networks."""
        for name in _inspect(self._client, container)["NetworkSettings"]["Networks"]:
            with explained(f"disconnection of {container.service}"):
                self._client.networks.get(name).disconnect(container.container_id, force=True)
        if self.attachments(container):
            raise CannotRun(f"{container.service} was disconnected but is in a network")

    def attach(self, container: Container, attachments: Sequence[JsonMap]) -> None:
        """Put it into these networks again."""
        attach(self._client, self._run_id, container, attachments)

    def _attachment(self, name: str, endpoint: dict[str, Any]) -> JsonMap:
        labels = self._client.networks.get(name).attrs["Labels"] or {}
        aliases: list[JsonValue] = [*(endpoint.get("Aliases") or [])]
        return {
            "network": labels.get(NETWORK_KEY, name),
            "aliases": aliases,
            "address": endpoint.get("IPAddress"),
        }

    def _ask(self, container: Container, request: JsonMap) -> FilterAnswer:
        return self._helper(container).run("packets", request, FilterAnswer)

    def _helper(self, container: Container) -> Helper:
        role = role_beside(self._client, container)
        with self._lock:
            if role not in self._helpers:
                self._helpers[role] = beside(self._client, self._run_id, container)
            return self._helpers[role]


def chain_of(run_id: str, name: str) -> str:
    """Return the name of a rule's chain, at most 28 characters."""
    return f"{prefix_of(run_id)}{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def prefix_of(run_id: str) -> str:
    """Return how the chains of a run begin."""
    return f"fr-{hashlib.sha256(run_id.encode()).hexdigest()[:8]}-"


def role_beside(client: DockerClient, container: Container) -> str:
    """Return the role of the helper in a container's namespace, of this start of it."""
    state = _inspect(client, container)["State"]
    if not state["Running"]:
        raise NoTarget(f"{container.service} does not run: it has no network namespace")
    start = hashlib.sha256(f"{container.container_id} {state['StartedAt']}".encode()).hexdigest()
    return f"{ROLE}-{container.service}-{start[:8]}"


def beside(client: DockerClient, run_id: str, container: Container) -> Helper:
    """Return a helper in a container's network namespace, which may change its rules."""
    reach = Reach(
        volumes=(),
        network=f"container:{container.container_id}",
        user="0:0",
        capabilities=("NET_ADMIN",),
    )
    return Helper(client, run_id, role_beside(client, container), reach)


def clear(helper: Helper, run_id: str) -> None:
    """Take away every rule of a run from the namespace of a helper."""
    request: JsonMap = {"do": "clear", "prefix": prefix_of(run_id)}
    if left := helper.run("packets", request, FilterAnswer).chains:
        raise CannotRun(f"packet rules are still there: {', '.join(left)}")


def attach(
    client: DockerClient, run_id: str, container: Container, attachments: Sequence[JsonMap]
) -> None:
    """Put a container into networks of its project, where it is not yet.

    An address is asked for only by its network's own rules: those of a composed one are not fixed.
    """
    inside = _inspect(client, container)["NetworkSettings"]["Networks"]
    for wanted in attachments:
        filters = by_labels(run_id, {NETWORK_KEY: str(wanted["network"])})
        for network in client.networks.list(filters=filters):
            if network.name in inside:
                continue
            names = wanted["aliases"]
            aliases = [str(name) for name in names] if isinstance(names, list) else []
            with explained(f"connection of {container.service}"):
                network.connect(container.container_id, aliases=aliases)


def chains_left(
    client: DockerClient, run_id: str, containers: Iterable[Container]
) -> tuple[str, ...]:
    """Return SERVICE/CHAIN of each rule of a run that is left in a container that runs.

    Rules come only from helpers of this role, so that containers which never had one are spared.
    """
    with explained("list of containers"):
        found = client.api.containers(all=True, filters=by_labels(run_id))
    roles = {str(each["Labels"].get(ROLE_KEY, "")) for each in found}
    request: JsonMap = {"do": "list", "prefix": prefix_of(run_id)}
    left = []
    for container in containers:
        if any(role.startswith(f"{ROLE}-{container.service}-") for role in roles):
            helper = beside(client, run_id, container)
            chains = helper.run("packets", request, FilterAnswer).chains
            left += [f"{container.service}/{chain}" for chain in chains]
    return tuple(sorted(left))


def living(client: DockerClient, run_id: str) -> tuple[Container, ...]:
    """Return the containers of the run's services that run."""
    with explained("list of containers"):
        found = client.api.containers(filters=by_labels(run_id))
    services = [(str(each["Id"]), each["Labels"].get(SERVICE_KEY)) for each in found]
    return tuple(Container(each, service, run_id) for each, service in services if service)


def _inspect(client: DockerClient, container: Container) -> dict[str, Any]:
    with explained(f"inspection of {container.service}"):
        attrs: dict[str, Any] = client.api.inspect_container(container.container_id)
    return attrs


def _clear_packets(client: DockerClient, run_id: str, args: JsonMap) -> None:
    """Clear the namespace of a service's container; one that is not running has none."""
    containers = RunContainers(client, run_id)
    try:
        helper = beside(client, run_id, containers.service(str(args["service"])))
    except NoTarget:
        return
    clear(helper, run_id)


def _reconnect(client: DockerClient, run_id: str, args: JsonMap) -> None:
    """Put a service's container into its networks, whether it runs or not."""
    try:
        container = RunContainers(client, run_id).service(str(text(args["service"])))
    except NoTarget:
        return
    attach(client, run_id, container, items(args["attachments"]))


UNDOS: dict[str, UndoAction] = {"clear_packets": _clear_packets, "reconnect": _reconnect}
