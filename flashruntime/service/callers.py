"""Whose a call is: a worker acts as its own nodes, on its own leases, in its own place."""

import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping

from fastapi import Request

from flashruntime.credentials import Role
from flashruntime.errors import AccessDenied
from flashruntime.leases.owners import LeaseOwner
from flashruntime.service.auth import Caller

CALLER = "flashruntime.caller"
MAX_OWNERS = 100_000
_LEASE_ID = re.compile(r"(?<![^/])lease-[0-9a-f]{32}(?![^/])")
FindOwner = Callable[[str], Awaitable[LeaseOwner | None]]


class Owners:
    """Who owns which lease: asked of the ledger once, for an owner never changes."""

    def __init__(self, find: FindOwner) -> None:
        self._find = find
        self._known: OrderedDict[str, LeaseOwner] = OrderedDict()

    async def require(self, caller: Caller, named: Mapping[str, object]) -> None:
        """Raise AccessDenied where a worker names a `node_id` or `lease_id` not its own."""
        if Role.OPERATOR in caller.roles:
            return
        if isinstance(node_id := named.get("node_id"), str):
            require_node(caller, node_id)
        if isinstance(lease_id := named.get("lease_id"), str):
            owner = await self._owner(lease_id)
            if owner is not None:
                require_node(caller, owner.node_id)

    async def require_key(self, caller: Caller, key: str) -> None:
        """Raise AccessDenied where a worker would write outside of what its leases may write."""
        if Role.OPERATOR in caller.roles:
            return
        for lease_id in _LEASE_ID.findall(key):
            owner = await self._owner(lease_id)
            if owner is not None and key.startswith(f"{owner.output_prefix}/"):
                require_node(caller, owner.node_id)
                return
        raise AccessDenied(
            f"{caller.name!r} is a worker and may write below the output_prefix of its own leases "
            f"only, not {key!r}"
        )

    async def _owner(self, lease_id: str) -> LeaseOwner | None:
        owner = self._known.get(lease_id)
        if owner is None and (owner := await self._find(lease_id)) is not None:
            self._known[lease_id] = owner
            if len(self._known) > MAX_OWNERS:
                self._known.popitem(last=False)
        return owner


def require_node(caller: Caller, node_id: str) -> None:
    """Raise AccessDenied where a caller may not act as this node."""
    if not caller.may_be(node_id):
        raise AccessDenied(
            f"the token of {caller.name!r} acts as {', '.join(caller.nodes) or 'no node'}, not as "
            f"{node_id!r}; set FLASHML_NODE_ID to such a name, or nodes= in its line"
        )


async def require_own(request: Request, named: object) -> None:
    """Raise AccessDenied where a worker's body names a node or a lease that is not its own."""
    caller: Caller | None = request.scope.get(CALLER)
    if caller is not None and isinstance(named, Mapping):
        await request.app.state.gate.owners.require(caller, named)


async def require_key(request: Request, key: str) -> None:
    """Raise AccessDenied where the caller may not write this object."""
    caller: Caller | None = request.scope.get(CALLER)
    if caller is not None:
        await request.app.state.gate.owners.require_key(caller, key)
