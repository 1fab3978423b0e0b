"""Nodes: who registered, in which session, and when they were last heard of."""

import secrets

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

NODE_LIVE_NS = 60 * NS_PER_S
MAX_REMEMBERED = 10_000


class NodeRegistry(Ledger):
    """Registrations are durable; signs of life are not, their time counts from the start."""

    def __init__(self, store: LeaseStore, clock: Clock) -> None:
        super().__init__(store, clock)
        self._started_ns = clock.monotonic_ns()
        self._seen_ns: dict[str, int] = {}

    def register_node(self, registration: NodeRegistration) -> NodeRegistered:
        """Open a new session of a node; an older session of the same node ends with it."""
        row = NodeRow(
            node_id=registration.node_id,
            session_id=f"session-{secrets.token_hex(8)}",
            hostname=None if registration.hostname is None else clean(registration.hostname),
            registered_at=self._clock.utc_now(),
            registration_json=dump_model(registration),
        )
        with self._store.transaction() as tx:
            tx.put_node(row)
        self._note(row.node_id)
        return NodeRegistered(node_id=row.node_id, status="registered", session_id=row.session_id)

    @quick
    def node_heartbeat(self, node_id: str, beat: NodeHeartbeat) -> NodeRecord:
        """Note a sign of life; NotFound if unregistered, Superseded from an older session."""
        with self._store.transaction() as tx:
            row = self._session(tx, node_id, beat.session_id)
        self._note(node_id)
        return self._node_record(row)

    def nodes(self) -> NodePage:
        """Return all registered nodes."""
        with self._store.transaction() as tx:
            rows = tx.nodes()
        return NodePage(items=[self._node_record(row) for row in rows])

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

    def _note(self, node_id: str) -> None:
        """Remember a sign of life, of the nodes heard of last only."""
        self._seen_ns.pop(node_id, None)
        self._seen_ns[node_id] = self._clock.monotonic_ns()
        while len(self._seen_ns) > MAX_REMEMBERED:
            self._seen_ns.pop(next(iter(self._seen_ns)))

    def _others_live(self, node_id: str, now_ns: int) -> bool:
        newest_first = reversed(self._seen_ns.items())
        other = next(((node, seen) for node, seen in newest_first if node != node_id), None)
        return other is not None and now_ns - other[1] <= NODE_LIVE_NS

    def _node_record(self, row: NodeRow) -> NodeRecord:
        seen_ns = self._seen_ns.get(row.node_id, self._started_ns)
        idle_ns = max(0, self._clock.monotonic_ns() - seen_ns)
        return NodeRecord(
            node_id=row.node_id,
            session_id=row.session_id,
            hostname=row.hostname,
            status="live" if idle_ns <= NODE_LIVE_NS else "lost",
            registered_at=row.registered_at,
            idle_s=idle_ns / NS_PER_S,
        )
