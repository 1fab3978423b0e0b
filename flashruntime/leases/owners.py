"""To whom a lease was given, whatever became of it."""

from dataclasses import dataclass

from flashruntime.leases.jsontext import clean
from flashruntime.leases.ledger import Ledger


@dataclass(frozen=True, slots=True)
class LeaseOwner:
    """The node that a lease was given to, and where it puts its outputs."""

    node_id: str
    output_prefix: str


class LeaseOwners(Ledger):
    """Looks up the owners of leases."""

    def lease_owner(self, lease_id: str) -> LeaseOwner | None:
        """Return whose a lease is or was, None if there is no such lease."""
        with self._store.transaction() as tx:
            lease = tx.lease(clean(lease_id))
        return None if lease is None else LeaseOwner(lease.node_id, lease.output_prefix)
