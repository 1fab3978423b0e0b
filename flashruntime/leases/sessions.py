"""Sessions: which node holds its stream open, and what becomes of its leases when that ends.

A lease that lapses with its session is not fenced: it holds until somebody else claims.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flashruntime.clock import Clock
from flashruntime.leases import transitions
from flashruntime.leases.ledger import attempt
from flashruntime.leases.nodes import MAX_REMEMBERED, Link, NodeRegistry
from flashruntime.leases.record import EventDraft, LeaseRow, LeaseState
from flashruntime.leases.store import LeaseStore, Transaction
from flashruntime.protocol.events import EventType
from flashruntime.protocol.nodes import SessionEnding

REASON = "session_ended"
NOBODY: Mapping[str, int] = {}


@dataclass(frozen=True, slots=True)
class SessionEnd:
    """The stream `link` ended at `at_ns`, CLOCK_MONOTONIC; `reason` says how."""

    link: Link
    at_ns: int
    reason: SessionEnding


class SessionBook(NodeRegistry):
    """Who is connected is known to this process alone: at its start, nobody is."""

    def __init__(self, store: LeaseStore, clock: Clock) -> None:
        super().__init__(store, clock)
        self._streams = 0
        self._let_go: dict[str, tuple[str, ...]] = {}

    def open_session(self, node_id: str, session_id: str | None) -> Link:
        """Note that a node holds a stream open; what lapsed with its session lives again.

        Without `session_id`, it is the node's newest. NotFound if the node is unregistered,
        Superseded from an older session.
        """
        with self._store.transaction() as tx:
            row = self._session(tx, node_id, session_id)
            link = Link(row.node_id, row.session_id, self._streams + 1)
            self._append(tx, [_event(EventType.NODE_SESSION_STARTED, link)])
            self._take_back(tx, row.session_id)
        self._streams = link.number
        self._let_go.pop(row.session_id, None)
        self._links[row.node_id] = link
        self._note(row.node_id)
        return link

    def end_sessions(
        self,
        ended: Sequence[SessionEnd],
        lost: Sequence[SessionEnd],
        heard_ns: Mapping[str, int] = NOBODY,
    ) -> int:
        """Record streams that have ended; make the leases of `lost` sessions claimable.

        Spared are sessions that are back, and each lease whose heartbeat arrived (`heard_ns`,
        by lease) after the end. Return how many leases have lapsed.
        """
        for end in ended:
            if self._links.get(end.link.node_id) == end.link:
                del self._links[end.link.node_id]
        let_go: dict[str, tuple[str, ...]] = {}
        with self._store.transaction() as tx:
            self._append(tx, [_ended(end) for end in ended])
            for end in lost:
                back = self._links.get(end.link.node_id)
                if back is None or back.session_id != end.link.session_id:
                    let_go[end.link.session_id] = self._lose(tx, end, heard_ns)
        self._remember(let_go)
        return sum(map(len, let_go.values()))

    def lapse_node(self, node_id: str, session_id: str | None) -> int:
        """Make the tasks of a node's live leases claimable: its session (None: any) has ended."""
        with self._store.transaction() as tx:
            live = tx.live_leases(node_id)
            lost = [lease for lease in live if session_id in {None, lease.session_id}]
            self._lapse(tx, lost, REASON)
        return len(lost)

    def _lose(
        self, tx: Transaction, end: SessionEnd, heard_ns: Mapping[str, int]
    ) -> tuple[str, ...]:
        lost = [
            lease
            for lease in tx.live_leases(end.link.node_id)
            if lease.session_id == end.link.session_id
            and heard_ns.get(lease.lease_id, -1) < end.at_ns
        ]
        self._lapse(tx, lost, REASON)
        return tuple(lease.lease_id for lease in lost)

    def _lapse(self, tx: Transaction, leases: Sequence[LeaseRow], reason: str) -> None:
        for lease in leases:
            task, lease_now = attempt(tx, lease.lease_id)
            self._apply(tx, task, transitions.lapse(task, lease_now, reason))

    def _take_back(self, tx: Transaction, session_id: str | None) -> None:
        """Renew what lapsed with a session that is back, where nobody has claimed it since."""
        if session_id is None or session_id not in self._let_go:
            return
        now_ns = self._clock.monotonic_ns()
        for lease_id in self._let_go[session_id]:
            lease = tx.lease(lease_id)
            task = None if lease is None else tx.task(lease.task_id)
            if lease is None or task is None:  # (its job was deleted meanwhile)
                continue
            if lease.state is LeaseState.LAPSED and transitions.holds(task, lease_id):
                self._apply(tx, task, transitions.renew(task, lease, now_ns, None, None))

    def _remember(self, let_go: Mapping[str, tuple[str, ...]]) -> None:
        self._let_go.update({session: leases for session, leases in let_go.items() if leases})
        while len(self._let_go) > MAX_REMEMBERED:
            self._let_go.pop(next(iter(self._let_go)))


def _event(kind: EventType, link: Link, **more: str | int) -> EventDraft:
    data = {"node_id": link.node_id, "session_id": link.session_id, **more}
    return EventDraft(kind, None, None, None, data)


def _ended(end: SessionEnd) -> EventDraft:
    told = {"reason": end.reason.value, "ended_ns": end.at_ns}
    return _event(EventType.NODE_SESSION_ENDED, end.link, **told)
