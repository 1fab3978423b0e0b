"""Nodes: registered workers."""

from datetime import datetime
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict

from flashruntime.protocol.base import NodeId, OpenModel
from flashruntime.protocol.placement import Imports, NodeCapabilities


class NodeDuty(StrEnum):
    """What a node is to do: take tasks, take no new ones, or give back those that it has."""

    ACTIVE = "active"
    CORDONED = "cordoned"
    DRAINING = "draining"
    DRAINED = "drained"


class NodeOrder(StrEnum):
    """What an operator asks of a node."""

    CORDON = "cordon"
    UNCORDON = "uncordon"
    DRAIN = "drain"


class NodeRegistration(BaseModel):
    """A worker introduces itself; unknown fields are kept.

    `capabilities` are read as `NodeCapabilities`.
    With `session_id`, it goes on with that session where that is still the newest of its node.
    """

    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False)

    node_id: NodeId
    kubernetes_node: str | None = None
    hostname: str | None = None
    capabilities: Any = None
    environment: Any = None
    session_id: str | None = None


class NodeRegistered(OpenModel):
    """Answer to a registration; unless it goes on with one, it opens a session of its own."""

    node_id: str
    status: str
    session_id: str
    duty: NodeDuty = NodeDuty.ACTIVE


class NodeHeartbeat(OpenModel):
    """Sign of life of a worker; time is stamped by the coordinator."""

    session_id: str | None = None


class NodeSession(OpenModel):
    """A worker holds a session open; without `session_id`, the newest of its node."""

    session_id: str | None = None


class SessionNews(StrEnum):
    """What a line of a session's stream says."""

    OPEN = "open"
    ALIVE = "alive"
    DUTY = "duty"
    ENDED = "ended"


class SessionEnding(StrEnum):
    """How a session's stream ended, the first three as told in its last line.

    `superseded`: the node has registered again. `replaced`: the same session was opened again.
    `stopping`: the coordinator leaves. `closed`: the connection was closed.
    """

    SUPERSEDED = "superseded"
    REPLACED = "replaced"
    STOPPING = "stopping"
    CLOSED = "closed"


class SessionLine(OpenModel):
    """One line of a session's stream; the first says how often the others come."""

    news: SessionNews
    node_id: str | None = None
    session_id: str | None = None
    keepalive_s: float | None = None
    duty: NodeDuty | None = None
    reason: SessionEnding | None = None


class NodeRecord(OpenModel):
    """A node as the coordinator sees it; `idle_s` is the time since its last sign of life.

    `connected` tells whether it holds the stream of its session open.
    `running` counts its live leases. In answers to its heartbeats, `imports` are those of the
    scripts that run anywhere, for it may have to go on with one.
    """

    node_id: str
    session_id: str
    hostname: str | None = None
    status: str
    connected: bool = False
    registered_at: datetime
    idle_s: float
    duty: NodeDuty = NodeDuty.ACTIVE
    running: int = 0
    capabilities: NodeCapabilities = NodeCapabilities()
    imports: Imports = []


class NodePage(OpenModel):
    """All known nodes."""

    items: list[NodeRecord]
