"""Events: the ordered record of what happened to a job."""

from datetime import datetime
from enum import StrEnum

from pydantic import JsonValue

from flashruntime.protocol.base import OpenModel


class EventType(StrEnum):
    """What can happen to a job, its tasks and their leases, and to nodes."""

    JOB_ACCEPTED = "JOB_ACCEPTED"
    TASK_CREATED = "TASK_CREATED"
    LEASE_CLAIMED = "LEASE_CLAIMED"
    LEASE_RENEWED = "LEASE_RENEWED"
    LEASE_EXPIRED = "LEASE_EXPIRED"
    LEASE_REFUSED = "LEASE_REFUSED"
    ATTEMPT_STARTED = "ATTEMPT_STARTED"
    ATTEMPT_HUNG = "ATTEMPT_HUNG"
    TASK_SET_ASIDE = "TASK_SET_ASIDE"
    TASK_REQUEUED = "TASK_REQUEUED"
    TASK_COMMIT_ACCEPTED = "TASK_COMMIT_ACCEPTED"
    TASK_COMMIT_REJECTED = "TASK_COMMIT_REJECTED"
    TASK_ATTEMPT_FAILED = "TASK_ATTEMPT_FAILED"
    TASK_EXHAUSTED = "TASK_EXHAUSTED"
    CHECKPOINT_MANIFEST_COMMITTED = "CHECKPOINT_MANIFEST_COMMITTED"
    CHECKPOINT_REJECTED = "CHECKPOINT_REJECTED"
    CHECKPOINT_SET_ASIDE = "CHECKPOINT_SET_ASIDE"
    FAILURE_CLASSIFIED = "FAILURE_CLASSIFIED"
    RECOVERY_ACTION_SELECTED = "RECOVERY_ACTION_SELECTED"
    RECOVERY_FROZEN = "RECOVERY_FROZEN"
    JOB_SUCCEEDED = "JOB_SUCCEEDED"
    JOB_FAILED = "JOB_FAILED"
    JOB_CANCELLED = "JOB_CANCELLED"
    JOB_DELETED = "JOB_DELETED"
    ARTIFACT_CORRUPT = "ARTIFACT_CORRUPT"
    ARTIFACT_RESTORED = "ARTIFACT_RESTORED"
    COORDINATOR_STARTED = "COORDINATOR_STARTED"
    NODE_SESSION_STARTED = "NODE_SESSION_STARTED"
    NODE_SESSION_ENDED = "NODE_SESSION_ENDED"
    NODE_CORDONED = "NODE_CORDONED"
    NODE_UNCORDONED = "NODE_UNCORDONED"
    NODE_DRAINING = "NODE_DRAINING"
    NODE_DRAINED = "NODE_DRAINED"


class Event(OpenModel):
    """One event; ids rise without bound and never repeat on one ledger.

    `mono_ns` is CLOCK_MONOTONIC of the coordinator's host, comparable where `boot_id` is equal.
    """

    id: int
    job_id: str | None
    task_id: str | None = None
    lease_id: str | None = None
    type: EventType
    at: datetime
    mono_ns: int
    boot_id: str
    data: dict[str, JsonValue] = {}


class EventPage(OpenModel):
    """Events in order; pass the last id as `after` for those that follow."""

    items: list[Event]
    last_id: int
