"""Toxiproxy's control API behind one adapter, on toxiproxy-python's HTTP layer.

The client keeps host and port in class attributes and sets no timeouts: each adapter makes a
consumer class of its own, names a timeout on every call, and believes only what it reads back.
"""

import json
import time
from dataclasses import dataclass
from typing import Any

from requests import Response
from requests.exceptions import RequestException
from toxiproxy.api import APIConsumer
from toxiproxy.exceptions import InvalidToxic, NotFound, ProxyExists

from chaos.model import HarnessError

CALL_TIMEOUT_S = 3.0


class ProxyError(HarnessError):
    """Toxiproxy did not do what was asked."""


@dataclass(frozen=True, slots=True)
class Toxic:
    """A toxic as the server reports it."""

    proxy: str
    name: str
    kind: str
    stream: str
    attributes: dict[str, int]


class ToxiproxyServer:
    """One Toxiproxy server, reached by its control API."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        consumer = type("Consumer", (APIConsumer,), {"host": host, "port": port})
        self._consumer: Any = consumer
        self._address = f"{host}:{port}"

    def version(self) -> str:
        """Return the server's version; raise ProxyError where it does not answer."""
        text = str(self._call("get", "/version").text).strip()
        try:
            return str(json.loads(text)["version"])
        except (ValueError, KeyError, TypeError):
            return text

    def listeners(self) -> dict[str, str]:
        """Return name -> listen address of every enabled proxy."""
        proxies = self._proxies()
        return {name: proxy["listen"] for name, proxy in proxies.items() if proxy["enabled"]}

    def toxics(self) -> list[Toxic]:
        """Return every toxic on every proxy, in a fixed order."""
        found = [
            Toxic(name, toxic["name"], toxic["type"], toxic["stream"], toxic["attributes"])
            for name, proxy in self._proxies().items()
            for toxic in proxy["toxics"]
        ]
        return sorted(found, key=lambda toxic: (toxic.proxy, toxic.name))

    def add(self, toxic: Toxic) -> Toxic:
        """Add a toxic and return it as read back; the same toxic again changes nothing."""
        body = {
            "name": toxic.name,
            "type": toxic.kind,
            "stream": toxic.stream,
            "toxicity": 1.0,
            "attributes": toxic.attributes,
        }
        try:
            self._call("post", f"/proxies/{toxic.proxy}/toxics", json=body)
        except ToxicExists:
            pass
        found = self._find(toxic.proxy, toxic.name)
        if found is None or found.kind != toxic.kind or found.stream != toxic.stream:
            raise ProxyError(f"toxic {toxic.name} on {toxic.proxy}: set, but read back as {found}")
        return found

    def remove(self, proxy: str, name: str) -> None:
        """Remove a toxic; one that is gone already is no error.

        The control API can lock up on a removal under traffic: then the proxy is made anew.
        """
        try:
            self._call("delete", f"/proxies/{proxy}/toxics/{name}")
        except (Missing, ProxyError):
            pass
        if self._find(proxy, name) is not None:
            self._recreate(proxy)
        if self._find(proxy, name) is not None:
            raise ProxyError(f"toxic {name} on {proxy} is still there after its removal")

    def remove_all(self) -> int:
        """Remove every toxic; return how many there were."""
        found = self.toxics()
        for toxic in found:
            self.remove(toxic.proxy, toxic.name)
        return len(found)

    def _find(self, proxy: str, name: str) -> Toxic | None:
        matches = (toxic for toxic in self.toxics() if (toxic.proxy, toxic.name) == (proxy, name))
        return next(matches, None)

    def _proxies(self) -> dict[str, Any]:
        proxies: dict[str, Any] = self._call("get", "/proxies").json()
        return proxies

    def _recreate(self, proxy: str) -> None:
        """Delete and create a proxy under the same name, listener and upstream."""
        old = self._proxies()[proxy]
        self._call("delete", f"/proxies/{proxy}")
        body = {key: old[key] for key in ("name", "listen", "upstream", "enabled")}
        self._call("post", "/proxies", json=body)

    def _call(self, method: str, path: str, **options: Any) -> Response:
        call = getattr(self._consumer, method)
        try:
            response: Response = call(path, timeout=CALL_TIMEOUT_S, **options)
        except ProxyExists as error:
            raise ToxicExists(f"{method} {path}: already exists") from error
        except NotFound as error:
            raise Missing(f"{method} {path}: no such proxy or toxic") from error
        except InvalidToxic as error:
            raise ProxyError(f"{method} {path}: refused: {error}") from error
        except RequestException as error:
            raise ProxyError(
                f"Toxiproxy at {self._address} did not answer {method} {path}: {error}"
            ) from error
        if response.status_code >= 400:
            raise ProxyError(f"{method} {path}: HTTP {response.status_code} {response.text[:200]}")
        return response


class ToxicExists(ProxyError):
    """A toxic or proxy of that name exists."""


class Missing(ProxyError):
    """No such proxy or toxic."""
