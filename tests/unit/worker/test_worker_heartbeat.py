"""When an attempt's holder beats."""

import queue
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flashruntime.protocol.tasks import Lease, TaskPayload
from flashruntime.worker.control import AttemptControl, StopRequest
from flashruntime.worker.heartbeat import Heartbeat

LEASE = Lease(
    lease_id="lease-1",
    task_id="job-1-00000",
    job_id="job-1",
    task_index=0,
    node_id="n",
    attempt_number=1,
    lease_seconds=60,
    deadline=datetime.now(UTC),
    commit_key="outputs/a",
    output_prefix="outputs",
    payload=TaskPayload(type="command", command=["true"]),
)


class Beats:
    """A coordinator that hears heartbeats alone."""

    def __init__(self) -> None:
        self.steps: queue.SimpleQueue[int | None] = queue.SimpleQueue()

    def heartbeat(self, lease_id: str, request: Any) -> None:
        self.steps.put(request.step)


def test_the_first_step_is_told_at_once_and_the_next_ones_with_the_beat(tmp_path: Path) -> None:
    """So that the coordinator knows that an attempt goes on, long before a third of its lease."""
    beats: Any = Beats()
    control, steps = AttemptControl(StopRequest(1.0)), tmp_path / "step.json"
    with Heartbeat(LEASE, lambda _: nullcontext(beats), control, steps):
        steps.write_text('{"step": 41}')
        assert beats.steps.get(timeout=4.0) == 41
        steps.write_text('{"step": 42}')
        assert beats.steps.empty()
