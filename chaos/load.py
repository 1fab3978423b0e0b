"""Submits the jobs of a run: at once, or when the job that they wait for has ended."""

from collections.abc import Mapping

from chaos.history import HistoryWriter
from chaos.model import JobRequest, JsonMap, Observation, Unreachable
from chaos.ports import Runtime


class Load:
    """The jobs of one run; `roles` are those that were submitted, with their job ids."""

    def __init__(
        self, jobs: Mapping[str, JobRequest], runtime: Runtime, history: HistoryWriter
    ) -> None:
        self._waiting = dict(jobs)
        self._runtime = runtime
        self._history = history
        self.roles: dict[str, str] = {}

    @property
    def done(self) -> bool:
        """Whether every job was submitted."""
        return not self._waiting

    def submit_due(self, seen: Observation) -> bool:
        """Submit what waits for nothing any more; return whether there was anything.

        Once something was submitted, no answer to a submission means: later.
        """
        due = [role for role, job in self._waiting.items() if _is_due(job, seen)]
        try:
            for role in due:
                self._submit(role, self._waiting[role])
        except Unreachable:
            if not self.roles:
                raise
            return False
        return bool(due)

    def _submit(self, role: str, request: JobRequest) -> None:
        self.roles[role] = self._runtime.submit(role, request)
        del self._waiting[role]
        data: JsonMap = {
            "role": role,
            "job_id": self.roles[role],
            "lease_s": request.lease_s,
            "like": request.like,
            "expected": request.expected,
        }
        self._history.append("job_submitted", data)


def _is_due(request: JobRequest, seen: Observation) -> bool:
    if request.starts_after is None:
        return True
    before = seen.jobs.get(request.starts_after)
    return before is not None and before.terminal
