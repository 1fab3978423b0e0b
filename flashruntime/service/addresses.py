"""How a request is addressed: at which address, by which name, from which site.

A page of another site can make a browser call a coordinator on its own machine: by a name that the
page's owner points there (rebinding), or across sites. Neither gets an answer.
"""

from collections.abc import Mapping
from functools import lru_cache
from ipaddress import IPv6Address, ip_address

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
OWN_SITES = frozenset({b"same-origin", b"none"})


@lru_cache(maxsize=1024)
def is_loopback(address: str) -> bool:
    """Whether an address is one of this machine alone; False for a name."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return (mapped or found).is_loopback


@lru_cache(maxsize=1024)
def is_address(text: str) -> bool:
    """Whether a text is an IP address."""
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


@lru_cache(maxsize=1024)
def name_in(host: bytes) -> str | None:
    """Return the name or address in a Host header, in lower case; None if it is none."""
    text = host.decode("latin-1").lower()
    if text.startswith("["):
        name, bracket, rest = text[1:].partition("]")
        whole = bracket and (not rest or (rest[0] == ":" and rest[1:].isdigit()))
        return name if whole and is_address(name) else None
    name, colon, port = text.partition(":")
    plain = name.replace(".", "").replace("-", "").replace("_", "")
    if not plain.isascii() or not plain.isalnum() or (colon and not port.isdigit()):
        return None
    return name


def crosses_sites(method: str, headers: Mapping[bytes, bytes]) -> bool:
    """Whether a browser says that a page of another site makes this request.

    A link to us may be followed from anywhere; all else has to come from our own pages.
    """
    site, origin = headers.get(b"sec-fetch-site"), headers.get(b"origin")
    if site is not None:
        followed = method in SAFE_METHODS and headers.get(b"sec-fetch-mode") == b"navigate"
        return site not in OWN_SITES and not followed
    if origin is None or method in SAFE_METHODS:
        return False
    return origin.lower().partition(b"://")[2] != headers.get(b"host", b"").lower()
