"""Nodes: who registered, in which session, and when they were last heard of."""

import secrets
from dataclasses import dataclass, replace

from flashruntime.clock import Clock
from flashruntime.errors import NotFound, Superseded
from flashruntime.leases.jsontext import clean, dump_model
from flashruntime.leases.ledger import Ledger, quick
from flashruntime.leases.record import NodeRow
from flashruntime.leases.store import LeaseStore, Transaction
from flashruntime.leases.transitions import NS_PER_S
from flashruntime.protocol.nodes import (
    NodeHeartbeat,
    NodePage,
    NodeRecord,
    NodeRegistered,
    NodeRegistration,
)
from flashruntime.protocol.placement import NodeCapabilities, capabilities_of

NODE_LIVE_NS = 60 * NS_PER_S
MAX_REMEMBERED = 10_000


@dataclass(frozen=True, slots=True)
class Link:
    """A session's open stream; `number` counts the streams of this coordinator."""

    node_id: str
    session_id: str
    number: int


class NodeRegistry(Ledger):
    """Registrations are durable; signs of life are not, their time counts from the start."""

    def __init__(self, store: LeaseStore, clock: Clock) -> None:
        super().__init__(store, clock)
        self._started_ns = clock.monotonic_ns()
        self._seen_ns: dict[str, int] = {}
        self._links: dict[str, Link] = {}
        self._known: dict[str, tuple[str, NodeCapabilities]] = {}

    def register_node(self, registration: NodeRegistration) -> NodeRegistered:
        """Open a new session of a node, or go on with its newest; any older one ends with it."""
        row = NodeRow(
            node_id=registration.node_id,
            session_id=f"session-{secrets.token_hex(8)}",
            hostname=None if registration.hostname is None else clean(registration.hostname),
            registered_at=self._clock.utc_now(),
            registration_json=dump_model(registration),
        )
        with self._store.transaction() as tx:
            before = tx.node(row.node_id)
            if before is not None:
                row = replace(row, duty=before.duty)
                if before.session_id == registration.session_id:
                    row = replace(row, session_id=before.session_id)
            tx.put_node(row)
        self._known.pop(row.node_id, None)
        self._note(row.node_id)
        return NodeRegistered(
            node_id=row.node_id, status="registered", session_id=row.session_id, duty=row.duty
        )

    @quick
    def node_heartbeat(self, node_id: str, beat: NodeHeartbeat) -> NodeRecord:
        """Note a sign of life; NotFound if unregistered, Superseded from an older session."""
        with self._store.transaction() as tx:
            row = self._session(tx, node_id, beat.session_id)
            running = tx.live_counts(node_id).get(node_id, 0)
        self._note(node_id)
        return self._node_record(row, running)

    def nodes(self) -> NodePage:
        """Return all registered nodes."""
        with self._store.transaction() as tx:
            rows, running = tx.nodes(), tx.live_counts(None)
        return NodePage(items=[self._node_record(row, running.get(row.node_id, 0)) for row in rows])

    def _session(self, tx: Transaction, node_id: str, session_id: str | None) -> NodeRow:
        row = tx.node(clean(node_id))
        if row is None:
            raise NotFound(f"no node {clean(node_id)!r}: register it first")
        if session_id not in {None, row.session_id}:
            raise Superseded(
                f"node {node_id!r} has registered again since session {clean(session_id or '')!r}; "
                "give each worker a node id of its own"
            )
        return row

    def _open_session_of(self, node_id: str) -> str | None:
        """Return the session whose stream a node holds open."""
        link = self._links.get(node_id)
        return None if link is None else link.session_id

    def _note(self, node_id: str) -> None:
        """Remember a sign of life, of the nodes heard of last only."""
        self._seen_ns.pop(node_id, None)
        self._seen_ns[node_id] = self._clock.monotonic_ns()
        while len(self._seen_ns) > MAX_REMEMBERED:
            self._seen_ns.pop(next(iter(self._seen_ns)))

    def _node_record(self, row: NodeRow, running: int) -> NodeRecord:
        seen_ns = self._seen_ns.get(row.node_id, self._started_ns)
        idle_ns = max(0, self._clock.monotonic_ns() - seen_ns)
        return NodeRecord(
            node_id=row.node_id,
            session_id=row.session_id,
            hostname=row.hostname,
            status="live" if idle_ns <= NODE_LIVE_NS else "lost",
            connected=self._open_session_of(row.node_id) == row.session_id,
            registered_at=row.registered_at,
            idle_s=idle_ns / NS_PER_S,
            duty=row.duty,
            running=running,
            capabilities=self._declared(row),
        )

    def _declared(self, row: NodeRow) -> NodeCapabilities:
        """Return what a node declares, and remember it; of the nodes asked for last only."""
        known = self._known.pop(row.node_id, None)
        if known is None or known[0] != row.session_id:
            registration = NodeRegistration.model_validate_json(row.registration_json)
            known = row.session_id, capabilities_of(registration.capabilities)
        self._known[row.node_id] = known
        while len(self._known) > MAX_REMEMBERED:
            self._known.pop(next(iter(self._known)))
        return known[1]
