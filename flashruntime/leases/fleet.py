"""Nodes as places for tasks: what each offers, and cordon and drain."""

from collections.abc import Sequence
from dataclasses import replace

from flashruntime.clock import Clock
from flashruntime.leases import placement
from flashruntime.leases.ledger import quick
from flashruntime.leases.nodes import NODE_LIVE_NS, NodeRegistry
from flashruntime.leases.placement import ANY_NODE, Offer
from flashruntime.leases.record import EventDraft, JobRow, LeaseState, NodeRow, TaskRow
from flashruntime.leases.store import LeaseStore, Transaction
from flashruntime.leases.transitions import Change
from flashruntime.protocol.events import EventType
from flashruntime.protocol.jobs import JobRecord
from flashruntime.protocol.nodes import NodeDuty, NodeHeartbeat, NodeOrder, NodeRecord
from flashruntime.protocol.placement import MAX_IMPORTS, NodeCapabilities
from flashruntime.protocol.tasks import ClaimRequest

MAX_NEEDS = 8
MAX_IMPORTING = 32
_EVENTS = {
    NodeDuty.ACTIVE: EventType.NODE_UNCORDONED,
    NodeDuty.CORDONED: EventType.NODE_CORDONED,
    NodeDuty.DRAINING: EventType.NODE_DRAINING,
    NodeDuty.DRAINED: EventType.NODE_DRAINED,
}


class Fleet(NodeRegistry):
    """What a node may be given. Orders are durable and survive its registrations."""

    def __init__(self, store: LeaseStore, clock: Clock) -> None:
        super().__init__(store, clock)
        # Of nodes that are not active; what is decided by it is checked in the ledger, or harmless.
        self._duties: dict[str, NodeDuty] = {}
        self._has_recalled = False
        self._imports: dict[str, tuple[str, ...]] = {}

    def order_node(self, node_id: str, order: NodeOrder) -> NodeRecord:
        """Cordon, drain or uncordon a node; the same order again changes nothing. NotFound."""
        with self._store.transaction() as tx:
            before = self._session(tx, node_id, None)
            row = replace(before, duty=placement.ordered(before.duty, order))
            if row.duty is not before.duty:
                self._change(tx, row)
            row = self._settled(tx, row)
            running = tx.live_counts(row.node_id).get(row.node_id, 0)
        self._duties.pop(row.node_id, None)
        if row.duty is not NodeDuty.ACTIVE:
            self._duties[row.node_id] = row.duty
        return self._node_record(row, running)

    @quick
    def node_heartbeat(self, node_id: str, beat: NodeHeartbeat) -> NodeRecord:
        """Note a sign of life; NotFound if unregistered, Superseded from an older session."""
        record = super().node_heartbeat(node_id, beat)
        if not self._imports:
            return record
        words = dict.fromkeys(word for each in self._imports.values() for word in each)
        return record.model_copy(update={"imports": list(words)[:MAX_IMPORTS]})

    def _hear_imports(self, job_id: str, words: Sequence[str] | None) -> None:
        """Remember what a job's script imports, of the jobs heard of last, until it has ended."""
        if words:
            self._imports.pop(job_id, None)
            self._imports[job_id] = tuple(words)
        while len(self._imports) > MAX_IMPORTING:
            self._imports.pop(next(iter(self._imports)))

    def changes_lost(self) -> None:
        """Ask the ledger again: changes that calls had made were not kept."""
        self._has_recalled = False

    def _recall(self, tx: Transaction) -> None:
        """Take up what an earlier coordinator has queued, and what it has told nodes to do."""
        self._has_recalled = True
        self._needs.update(tx.queued_needs())
        duties = {row.node_id: row.duty for row in tx.nodes()}
        self._duties = {node: duty for node, duty in duties.items() if duty is not NodeDuty.ACTIVE}

    def _claimable_needs(
        self, tx: Transaction, request: ClaimRequest, job: JobRow | None
    ) -> tuple[str, ...]:
        """Return which needs of queued tasks the asking node can take now; none if cordoned."""
        row = tx.node(request.node_id)
        if row is not None and row.duty is not NodeDuty.ACTIVE:
            return ()
        needs = self._queued_needs(tx) if job is None else (job.need,)
        if needs in {(ANY_NODE,), ()}:
            return needs
        declared = NodeCapabilities() if row is None else self._declared(row)
        offer = placement.offer_of(declared, request.free)
        return tuple(need for need in needs if placement.fits(need, offer))

    def _others_free(self, node_id: str, now_ns: int, needs: Sequence[str]) -> bool:
        """Whether another node is alive that takes tasks with each of these needs."""
        for other, seen_ns in reversed(self._seen_ns.items()):
            if now_ns - seen_ns > NODE_LIVE_NS:
                return False
            if other == node_id or other in self._duties:
                continue
            declared = self._known.get(other, ("", NodeCapabilities()))[1]
            offer = placement.offer_of(declared)
            if all(placement.fits(need, offer) for need in needs):
                return True
        return False

    def _queued_needs(self, tx: Transaction) -> tuple[str, ...]:
        """Return the needs of queued tasks: as remembered, or of many needs as they are queued."""
        if not self._has_recalled:
            self._recall(tx)
        known = self._needs
        return tuple(known if len(known) <= MAX_NEEDS else tx.queued_needs())

    def _job_record(self, tx: Transaction, job: JobRow) -> JobRecord:
        record = super()._job_record(tx, job)
        if job.need == ANY_NODE or job.state.terminal or not job.counts.pending:
            return record
        open_ones, closed = self._offers(tx)
        words = placement.missing(job.need, open_ones, closed)
        return record.model_copy(update={"waiting_for": words})

    def _offers(self, tx: Transaction) -> tuple[dict[str, Offer], dict[str, Offer]]:
        """Return what the nodes that are alive have: those that take tasks, and the others."""
        since_ns = self._clock.monotonic_ns() - NODE_LIVE_NS
        open_ones: dict[str, Offer] = {}
        closed: dict[str, Offer] = {}
        for node_id, seen_ns in self._seen_ns.items():
            row = tx.node(node_id) if seen_ns >= since_ns else None
            if row is not None:
                takes = row.duty is NodeDuty.ACTIVE
                offer = placement.offer_of(self._declared(row))
                (open_ones if takes else closed)[node_id] = offer
        return open_ones, closed

    def _apply(self, tx: Transaction, before: TaskRow, change: Change) -> None:
        super()._apply(tx, before, change)
        if not self._duties_of(tx):
            return
        for lease in (change.fenced, change.lease):
            if lease is not None and lease.state is not LeaseState.LIVE:
                self._settle(tx, lease.node_id)

    def _end_job(
        self, tx: Transaction, job: JobRow, ended: EventType, reason: str | None
    ) -> JobRow:
        job = super()._end_job(tx, job, ended, reason)
        self._imports.pop(job.job_id, None)
        for node_id in self._duties_of(tx):
            self._settle(tx, node_id)
        return job

    def _duties_of(self, tx: Transaction) -> dict[str, NodeDuty]:
        if not self._has_recalled:
            self._recall(tx)
        return self._duties

    def _settle(self, tx: Transaction, node_id: str) -> None:
        is_draining = self._duties.get(node_id) is NodeDuty.DRAINING
        row = tx.node(node_id) if is_draining else None
        if row is not None:
            self._settled(tx, row)

    def _settled(self, tx: Transaction, row: NodeRow) -> NodeRow:
        """Return a node, drained if it was being drained and has no lease left."""
        if row.duty is not NodeDuty.DRAINING or tx.live_counts(row.node_id).get(row.node_id, 0):
            return row
        row = replace(row, duty=NodeDuty.DRAINED)
        self._change(tx, row)
        return row

    def _change(self, tx: Transaction, row: NodeRow) -> None:
        tx.put_node(row)
        data = {"node_id": row.node_id}
        self._append(tx, [EventDraft(_EVENTS[row.duty], None, None, None, data)])
