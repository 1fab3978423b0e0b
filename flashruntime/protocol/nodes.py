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
    """

    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False)

    node_id: NodeId
    kubernetes_node: str | None = None
    hostname: str | None = None
    capabilities: Any = None
    environment: Any = None


class NodeRegistered(OpenModel):
    """Answer to a registration; each registration opens a session of its own."""

    node_id: str
    status: str
    session_id: str
    duty: NodeDuty = NodeDuty.ACTIVE


class NodeHeartbeat(OpenModel):
    """Sign of life of a worker; time is stamped by the coordinator."""

    session_id: str | None = None


class NodeRecord(OpenModel):
    """A node as the coordinator sees it; `idle_s` is the time since its last sign of life.

    `running` counts its live leases. In answers to its heartbeats, `imports` are those of the
    scripts that run anywhere, for it may have to go on with one.
    """

    node_id: str
    session_id: str
    hostname: str | None = None
    status: str
    registered_at: datetime
    idle_s: float
    duty: NodeDuty = NodeDuty.ACTIVE
    running: int = 0
    capabilities: NodeCapabilities = NodeCapabilities()
    imports: Imports = []


class NodePage(OpenModel):
    """All known nodes."""

    items: list[NodeRecord]
