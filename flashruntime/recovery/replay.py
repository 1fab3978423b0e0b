"""Decide again what a record of events says was decided."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from flashruntime.protocol.events import Event, EventType
from flashruntime.protocol.failures import Decision, Evidence, History
from flashruntime.recovery.policy import POLICY_VERSION, decide


@dataclass(frozen=True, slots=True)
class Replayed:
    """A recorded decision beside the one that this policy makes of the same evidence.

    `again` is None where another version of the policy decided: only that one can say.
    """

    event: Event
    recorded: Decision
    again: Decision | None

    @property
    def same(self) -> bool | None:
        """Whether both agree, None where that cannot be told."""
        return None if self.again is None else self.again == self.recorded


def replay(events: Iterable[Event]) -> Iterator[Replayed]:
    """Yield every decision of a job or run, in the order in which they were made."""
    seen: dict[tuple[str | None, str | None], Evidence] = {}
    for event in events:
        key = event.task_id, event.lease_id
        if event.type is EventType.TASK_ATTEMPT_FAILED:
            fields = event.data["evidence"]
            evidence = Evidence.model_validate(fields)
            if (tail := event.data.get("log_tail")) is not None:
                evidence = evidence.model_copy(update={"log_tail": tail})
            seen[key] = evidence
        elif event.type is EventType.RECOVERY_ACTION_SELECTED:
            told = Evidence.model_validate(event.data["evidence"])
            yield _again(event, seen.pop(key, told))


def _again(event: Event, evidence: Evidence) -> Replayed:
    recorded = Decision.model_validate(event.data)
    again = None
    if recorded.policy_version == POLICY_VERSION:
        again = decide(evidence, recorded.history or History())
    return Replayed(event, recorded, again)
