"""Toxiproxy behind one adapter, on toxiproxy-python's HTTP layer.

That client keeps host and port in class attributes and sets no timeouts: each adapter makes a
consumer class of its own, gives every call a timeout, and believes only what it reads back.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property
from typing import Any

from docker import DockerClient
from pydantic import BaseModel
from requests import Response
from requests.exceptions import ConnectionError as NoConnection
from requests.exceptions import ReadTimeout, RequestException
from toxiproxy.api import APIConsumer
from toxiproxy.exceptions import InvalidToxic, NotFound, ProxyExists

from chaos.model import CannotRun, Container, JsonMap, NoTarget
from chaos.ports import Canary, Probe, Toxic
from chaos.targets.containers import RunContainers
from chaos.targets.engine import UndoAction, explained
from chaos.targets.helper import Helper

CALL_TIMEOUT_S = 3.0
LOOKS = 3
AGAIN_S = 0.2
MARGIN_S = 10.0
SERVICE = "toxiproxy"


class ProbeAnswer(BaseModel):
    """What inside/probe.py answers."""

    outcome: str
    elapsed_s: float


class CanaryAnswer(BaseModel):
    """One of those that inside/canary.py answers with."""

    outcome: str
    elapsed_s: float
    sent_bytes: int
    received_bytes: int
    reads: int

    def value(self) -> Canary:
        """Return it as the port states it."""
        return Canary(**self.model_dump())


class CanaryAnswers(BaseModel):
    """What inside/canary.py answers."""

    canaries: list[CanaryAnswer]


class Missing(CannotRun):
    """No such proxy or toxic."""


class Exists(CannotRun):
    """A proxy or toxic of that name is there already."""


class ToxiproxyServer:
    """One Toxiproxy server, by the port of its control API on 127.0.0.1.

    `port` is asked when the first call needs it, and again after one without an answer: a server
    that was started again may be published elsewhere.
    """

    def __init__(self, port: Callable[[], int]) -> None:
        self._port = port

    def version(self) -> str:
        """Return what the server calls its version."""
        return str(self._call("get", "/version").text).strip()

    def listeners(self) -> dict[str, int]:
        """Return name -> port of every enabled listener."""
        return {
            name: int(str(proxy["listen"]).rpartition(":")[2])
            for name, proxy in self._proxies().items()
            if proxy["enabled"]
        }

    def ports(self) -> dict[str, int]:
        """Return name -> port of every listener, also of those that are down."""
        proxies = self._proxies().items()
        return {name: int(str(proxy["listen"]).rpartition(":")[2]) for name, proxy in proxies}

    def switch(self, listener: str, *, on: bool) -> None:
        """Enable or disable a listener and read that back."""
        self._call("post", f"/proxies/{listener}", json={"enabled": on})
        if (listener in self.listeners()) is not on:
            raise CannotRun(f"listener {listener} was set to enabled={on} but is not")

    def renew(self, listener: str) -> None:
        """Delete a listener and create it anew: without toxics, and its connections are closed.

        Toxics that are removed one by one wait for what is still on its way to closed connections.
        """
        self._recreate(listener)
        if listener not in self.listeners() or self.toxics().get(listener):
            raise CannotRun(f"listener {listener} was made anew but is not there as it should be")

    def toxics(self) -> Mapping[str, tuple[Toxic, ...]]:
        """Return what is switched on, by listener."""
        found = defaultdict[str, list[Toxic]](list)
        for name, proxy in self._proxies().items():
            for toxic in proxy["toxics"]:
                attributes = {key: int(value) for key, value in toxic["attributes"].items()}
                value = Toxic(toxic["name"], toxic["type"], toxic["stream"], attributes)
                found[name].append(value)
        return {name: tuple(toxics) for name, toxics in found.items()}

    def add(self, listener: str, toxic: Toxic) -> None:
        """Switch a toxic on and read it back; the same one again changes nothing."""
        body = {
            "name": toxic.name,
            "type": toxic.type,
            "stream": toxic.stream,
            "toxicity": 1.0,
            "attributes": dict(toxic.attributes),
        }
        with suppress(Exists):
            self._call("post", f"/proxies/{listener}/toxics", json=body)
        found = self._find(listener, toxic.name)
        wanted = dict(toxic.attributes).items()
        if found is None or (found.type, found.stream) != (toxic.type, toxic.stream):
            raise CannotRun(f"toxic {toxic.name} on {listener} was set but reads back as {found}")
        if not wanted <= dict(found.attributes).items():
            raise CannotRun(f"toxic {toxic.name} on {listener} reads back as {found.attributes}")

    def remove(self, listener: str, name: str) -> None:
        """Switch a toxic off and read back that it is gone; a missing one is fine.

        The control API can lock up on a removal under traffic: then the listener is made anew.
        """
        try:
            self._call("delete", f"/proxies/{listener}/toxics/{name}")
        except CannotRun:
            if self._find(listener, name) is not None:
                self._recreate(listener)
        if self._find(listener, name) is not None:
            raise CannotRun(f"toxic {name} on {listener} is still there after its removal")

    def _find(self, listener: str, name: str) -> Toxic | None:
        toxics = self.toxics().get(listener, ())
        return next((toxic for toxic in toxics if toxic.name == name), None)

    def _proxies(self) -> dict[str, Any]:
        proxies: dict[str, Any] = self._call("get", "/proxies").json()
        return proxies

    def _recreate(self, listener: str) -> None:
        """Delete a proxy and create it under the same name, address and upstream."""
        old = self._proxies()[listener]
        self._call("delete", f"/proxies/{listener}")
        body = {key: old[key] for key in ("name", "listen", "upstream", "enabled")}
        self._call("post", "/proxies", json=body)

    @cached_property
    def _consumer(self) -> Any:
        return type("Consumer", (APIConsumer,), {"host": "127.0.0.1", "port": self._port()})

    def _call(self, method: str, path: str, **options: Any) -> Response:
        doing = f"Toxiproxy at 127.0.0.1:{self._consumer.port}, {method.upper()} {path}"
        try:
            response = self._answer(method, path, **options)
        except ProxyExists as error:
            raise Exists(f"{doing}: it exists already") from error
        except NotFound as error:
            raise Missing(f"{doing}: no such proxy or toxic") from error
        except InvalidToxic as error:
            raise CannotRun(f"{doing}: refused: {error}") from error
        except RequestException as error:
            self.__dict__.pop("_consumer", None)
            raise CannotRun(f"{doing}: no answer in {CALL_TIMEOUT_S:g} s: {error}") from error
        if response.status_code >= 400:
            raise CannotRun(f"{doing}: HTTP {response.status_code} {response.text[:200]}")
        return response

    def _answer(self, method: str, path: str, **options: Any) -> Response:
        """Call; look again where a look had no answer.

        Another call may hold a lock, or the server is starting: then it is asked where it is, too.
        """
        for left in reversed(range(LOOKS if method == "get" else 1)):
            try:
                call = getattr(self._consumer, method)
                response: Response = call(path, timeout=CALL_TIMEOUT_S, **options)
            except (ReadTimeout, NoConnection):
                if not left:
                    raise
                self.__dict__.pop("_consumer", None)
                time.sleep(AGAIN_S)
            else:
                break
        return response


class ProxyNetwork:
    """The paths of one run: Toxiproxy's listeners, probed from where the workers are."""

    def __init__(self, server: ToxiproxyServer, helper: Helper) -> None:
        self._server = server
        self._helper = helper
        self._ports: dict[str, int] = {}

    def listener_of(self, container: Container) -> str:
        """Return the listener that carries the name of the container's service."""
        if container.service not in self._server.listeners():
            raise CannotRun(f"Toxiproxy has no listener for {container.service}")
        return container.service

    def listeners(self) -> tuple[str, ...]:
        """Return the names of all listeners."""
        return tuple(sorted(self._server.listeners()))

    def add(self, listener: str, toxic: Toxic) -> None:
        """Switch a toxic on and read it back."""
        self._server.add(listener, toxic)

    def remove(self, listener: str, name: str) -> None:
        """Switch a toxic off and read back that it is gone."""
        self._server.remove(listener, name)

    def toxics(self) -> Mapping[str, tuple[Toxic, ...]]:
        """Return what is switched on, by listener."""
        return self._server.toxics()

    def probe(self, listener: str, timeout_s: float) -> Probe:
        """Ask for /healthz through the listener on a new connection, from the workers' network."""
        port = self._server.listeners().get(listener)
        if port is None:
            raise CannotRun(f"Toxiproxy has no listener {listener}")
        request: JsonMap = {
            "host": SERVICE,
            "port": port,
            "path": "/healthz",
            "timeout_s": timeout_s,
        }
        answer = self._helper.run("probe", request, ProbeAnswer)
        return Probe(answer.outcome, answer.elapsed_s)

    def canary(self, listener: str, timeout_s: float, pad_bytes: int = 0) -> Canary:
        """Ask for /healthz on a new connection and read the answer to its end."""
        return self.canaries(self._helper, listener, 1, timeout_s, pad_bytes)[0]

    def canaries(
        self, helper: Helper, listener: str, times: int, timeout_s: float, pad_bytes: int = 0
    ) -> tuple[Canary, ...]:
        """Make requests from where a helper is, one after the other."""
        request: JsonMap = {
            "host": SERVICE,
            "port": self._port(listener),
            "path": "/healthz",
            "timeout_s": timeout_s,
            "pad_bytes": pad_bytes,
            "times": times,
        }
        answer = helper.run("canary", request, CanaryAnswers, times * timeout_s + MARGIN_S)
        return tuple(canary.value() for canary in answer.canaries)

    def switch(self, listener: str, *, on: bool) -> None:
        """Enable or disable a listener and read that back."""
        self._server.switch(listener, on=on)

    def renew(self, listener: str) -> None:
        """Close every connection of a listener and open it again without toxics."""
        self._server.renew(listener)

    def _port(self, listener: str) -> int:
        """Return the port of a listener, the last one known where Toxiproxy itself is down."""
        try:
            self._ports = self._server.ports()
        except CannotRun:
            if listener not in self._ports:
                raise
        if listener not in self._ports:
            raise CannotRun(f"Toxiproxy has no listener {listener}")
        return self._ports[listener]


def server_of(containers: RunContainers) -> ToxiproxyServer:
    """Return the server of a run, whose port is asked for when it is first needed."""
    return ToxiproxyServer(lambda: containers.published(SERVICE, 8474))


def _living(client: DockerClient, run_id: str) -> ToxiproxyServer | None:
    """Return the server of a run while its container runs; one that is down has no state."""
    containers = RunContainers(client, run_id)
    with suppress(NoTarget):
        if containers.running(containers.service(SERVICE)):
            return server_of(containers)
    return None


def _remove_toxics(client: DockerClient, run_id: str, args: JsonMap) -> None:
    """Remove the fault's toxics from its listener; a Toxiproxy that is down has none."""
    server, names = _living(client, run_id), args["names"]
    if server is None:
        return
    for name in names if isinstance(names, list) else []:
        server.remove(str(args["listener"]), str(name))


def _open_listener(client: DockerClient, run_id: str, args: JsonMap) -> None:
    """Enable the fault's listener; a Toxiproxy that is started has all of them, and enabled."""
    server = _living(client, run_id)
    if server is None:
        return
    try:
        server.switch(str(args["listener"]), on=True)
    except Missing:
        container = RunContainers(client, run_id).service(SERVICE)
        with explained(f"restart of {SERVICE}"):
            client.api.restart(container.container_id, timeout=1)


UNDOS: dict[str, UndoAction] = {"remove_toxics": _remove_toxics, "open_listener": _open_listener}
