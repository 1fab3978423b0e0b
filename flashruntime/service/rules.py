"""Which role may call which route.

A route without a line here is for operators; a test finds it, so that leaving it out is a choice.
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from re import Pattern

from starlette.routing import compile_path

from flashruntime.credentials import Role
from flashruntime.service import paths  # noqa: F401 (registers the convertor `anytext`)

API = "/v1alpha1"
CHECKPOINTS = f"{API}/jobs/{{job_id}}/tasks/{{task}}/checkpoints"


class Access(Enum):
    """Who may call a route: everybody, or the holders of a role."""

    OPEN = frozenset[Role]()
    OPERATOR = frozenset({Role.OPERATOR})
    WORKER = frozenset({Role.WORKER})
    EITHER = frozenset(Role)

    @property
    def words(self) -> str:
        """The roles in words."""
        return " or ".join(sorted(self.value))


RULES: dict[str, Access] = {
    "GET /healthz": Access.OPEN,
    "GET /readyz": Access.OPEN,
    "GET /": Access.OPERATOR,
    "GET /page/{name}": Access.OPERATOR,
    "GET /metrics": Access.EITHER,
    "GET /docs": Access.EITHER,
    "GET /openapi.json": Access.EITHER,
    f"POST {API}/jobs": Access.OPERATOR,
    f"GET {API}/jobs": Access.OPERATOR,
    f"GET {API}/jobs/{{job_id}}": Access.OPERATOR,
    f"POST {API}/jobs/{{job_id}}/cancel": Access.OPERATOR,
    f"GET {API}/jobs/{{job_id}}/tasks": Access.OPERATOR,
    f"GET {API}/jobs/{{job_id}}/events": Access.OPERATOR,
    f"GET {API}/jobs/{{job_id}}/logs": Access.OPERATOR,
    f"GET {API}/jobs/{{job_id}}/artifacts": Access.OPERATOR,
    f"DELETE {API}/jobs/{{job_id}}": Access.OPERATOR,
    f"GET {API}/jobs/{{job_id}}/grid": Access.OPERATOR,
    f"GET {API}/jobs/{{job_id}}/tasks/{{index}}/events": Access.OPERATOR,
    f"GET {API}/overview": Access.OPERATOR,
    f"GET {API}/history": Access.OPERATOR,
    f"GET {CHECKPOINTS}": Access.EITHER,
    f"GET {CHECKPOINTS}/latest": Access.EITHER,
    f"GET {CHECKPOINTS}/lost-work": Access.EITHER,
    f"GET {CHECKPOINTS}/parts/{{sha256}}": Access.EITHER,
    f"PUT {CHECKPOINTS}/parts/{{sha256}}": Access.WORKER,
    f"POST {CHECKPOINTS}/parts": Access.WORKER,
    f"POST {CHECKPOINTS}/commit": Access.WORKER,
    f"POST {CHECKPOINTS}/set-aside": Access.WORKER,
    f"GET {API}/events": Access.OPERATOR,
    f"GET {API}/nodes": Access.OPERATOR,
    f"POST {API}/nodes/register": Access.WORKER,
    f"POST {API}/nodes/{{node_id}}/heartbeat": Access.WORKER,
    f"POST {API}/nodes/{{node_id}}/session": Access.WORKER,
    f"POST {API}/nodes/{{node_id}}/cordon": Access.OPERATOR,
    f"POST {API}/nodes/{{node_id}}/uncordon": Access.OPERATOR,
    f"POST {API}/nodes/{{node_id}}/drain": Access.OPERATOR,
    f"POST {API}/leases/claim": Access.WORKER,
    f"POST {API}/attempts/{{lease_id}}/heartbeat": Access.WORKER,
    f"PUT {API}/attempts/{{lease_id}}/logs": Access.WORKER,
    f"POST {API}/attempts/{{lease_id}}/complete": Access.WORKER,
    f"POST {API}/attempts/{{lease_id}}/fail": Access.WORKER,
    f"PUT {API}/artifacts/{{key:anytext}}": Access.EITHER,
    f"GET {API}/artifacts/{{key:anytext}}": Access.EITHER,
    f"HEAD {API}/artifacts/{{key:anytext}}": Access.EITHER,
}


class Table:
    """The rules, looked up for a request as the router would look up its route."""

    def __init__(self, rules: Mapping[str, Access] = RULES) -> None:
        self._found: dict[tuple[str, str], list[tuple[Pattern[str], Access]]] = {}
        self._open = {tuple(rule.split()) for rule in rules if rules[rule] is Access.OPEN}
        for rule, access in rules.items():
            method, path = rule.split()
            pattern, _, _ = compile_path(path)
            self._found.setdefault((method, _family(path)), []).append((pattern, access))

    def is_open(self, method: str, path: str) -> bool:
        """Whether everybody may call this."""
        return (method, path) in self._open

    def access(self, method: str, path: str) -> tuple[Access, Mapping[str, str]]:
        """Return who may call this, and the parameters in its path."""
        for wanted in _methods(method):
            for pattern, access in self._found.get((wanted, _family(path)), ()):
                if (found := pattern.match(path)) is not None:
                    return access, found.groupdict()
        return Access.OPERATOR, {}


def _methods(method: str) -> Iterable[str]:
    return ("HEAD", "GET") if method == "HEAD" else (method,)


def _family(path: str) -> str:
    """Return the part of a path that has no parameter: what follows the version."""
    return path.removeprefix(f"{API}/").lstrip("/").partition("/")[0]
