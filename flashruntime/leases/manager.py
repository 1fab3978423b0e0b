"""Jobs, tasks and leases: a clock and a store around the pure transitions.

Every call is one transaction, is on disk before it returns, and can be repeated.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from pydantic import JsonValue

from flashruntime.clock import Clock
from flashruntime.errors import Conflict, Superseded
from flashruntime.leases import objects, progress, transitions, views
from flashruntime.leases.care import BlobCare
from flashruntime.leases.checkpoints import CheckpointCatalogue
from flashruntime.leases.fleet import Fleet
from flashruntime.leases.jobs import JobBook
from flashruntime.leases.jsontext import clean, dumps
from flashruntime.leases.ledger import attempt, new_lease_id, newest_lease, quick, wanted_job
from flashruntime.leases.owners import LeaseOwners
from flashruntime.leases.record import (
    ClaimQuery,
    EventDraft,
    LeaseRow,
    LeaseState,
    TaskResult,
    TaskRow,
)
from flashruntime.leases.retention import Retention
from flashruntime.leases.sessions import SessionBook
from flashruntime.leases.spool import Spool
from flashruntime.leases.store import LeaseStore, Transaction
from flashruntime.leases.transitions import NS_PER_S
from flashruntime.protocol.budget import fingerprint
from flashruntime.protocol.events import EventType
from flashruntime.protocol.failures import Decision, EndedBy, Evidence, History
from flashruntime.protocol.tasks import (
    ClaimRequest,
    CompleteAnswer,
    CompleteRequest,
    FailAnswer,
    FailRequest,
    HeartbeatRequest,
    Lease,
    LeaseStatus,
    OutputFile,
    TaskState,
)

# Of evidence and history, the task and the node, makes a decision.
Decide = Callable[[Evidence, History, str, str], Decision]
SPREAD_PATIENCE_NS = 5 * NS_PER_S
SWEEP_BATCH = 200


class LeaseManager(
    Fleet, JobBook, SessionBook, BlobCare, CheckpointCatalogue, Retention, Spool, LeaseOwners
):
    """The coordinator's core; synchronous, used from one thread at a time.

    With `judge`, the decision about each attempt whose node was lost is recorded too.
    """

    def __init__(self, store: LeaseStore, clock: Clock, judge: Decide | None = None) -> None:
        super().__init__(store, clock)
        self._judge = judge

    def start(self) -> None:
        """Give every live lease and every waiting task its full time again; call it once, first."""
        with self._store.transaction() as tx:
            rearmed = tx.rearm(self._clock.monotonic_ns())
            self._recall(tx)
            data: dict[str, JsonValue] = {"live_leases": rearmed}
            draft = EventDraft(EventType.COORDINATOR_STARTED, None, None, None, data)
            self._append(tx, [draft])

    def rearm(self) -> int:
        """Give every live lease and every waiting task its full time again; count the leases."""
        with self._store.transaction() as tx:
            return tx.rearm(self._clock.monotonic_ns())

    @quick
    def claim(self, request: ClaimRequest) -> Lease | None:
        """Give out the next due task, None if there is none.

        A repeated `claim_id` renews and returns the lease it brought; Superseded once that ended.
        """
        now_ns = self._clock.monotonic_ns()
        with self._store.transaction() as tx:
            if request.session_id is not None:
                self._session(tx, request.node_id, request.session_id)
                self._take_back(tx, request.session_id)
            self._note(request.node_id)
            if request.claim_id is not None:
                before = tx.lease_by_claim(request.node_id, request.claim_id)
                if before is not None:
                    return self._claimed_before(tx, before, now_ns)
            job = None if request.job_id is None else wanted_job(tx, request.job_id)
            needs = self._claimable_needs(tx, request, job)
            others = self._others_free(request.node_id, now_ns, needs)
            seq = None if job is None else job.seq
            query = ClaimQuery(request.node_id, now_ns, seq, others, SPREAD_PATIENCE_NS, needs)
            while (task := tx.next_claimable(query)) is not None:
                previous = newest_lease(tx, task)
                if not transitions.lost_too_often(task, previous):
                    return self._grant(tx, request, task, previous, now_ns)
                self._apply(tx, task, transitions.give_up(task, previous))
        return None

    def _claimed_before(self, tx: Transaction, lease: LeaseRow, now_ns: int) -> Lease:
        task, lease = attempt(tx, lease.lease_id)
        if lease.state is LeaseState.COMPLETED or not transitions.holds(task, lease.lease_id):
            raise Superseded(
                f"claim {clean(lease.claim_id or '')!r} brought lease {lease.lease_id}, which has "
                f"ended ({lease.state.value}); claim again under a new claim_id"
            )
        change = transitions.renew(task, lease, now_ns, None, None)
        self._apply(tx, task, change)
        return self._lease(tx, change.lease or lease, change.task, now_ns)

    def _grant(
        self,
        tx: Transaction,
        request: ClaimRequest,
        task: TaskRow,
        previous: LeaseRow | None,
        now_ns: int,
    ) -> Lease:
        job = wanted_job(tx, task.job_id)
        lease_id = new_lease_id()
        granted = LeaseRow(
            lease_id=lease_id,
            task_id=task.task_id,
            job_id=job.job_id,
            node_id=request.node_id,
            session_id=request.session_id or self._open_session_of(request.node_id),
            claim_id=request.claim_id,
            attempt_number=task.attempts + 1,
            state=LeaseState.LIVE,
            lease_ns=job.lease_ns,
            deadline_ns=now_ns + job.lease_ns,
            output_prefix=job.prefix_of(task.index, lease_id),
        )
        task = progress.after(task, previous)
        change = transitions.claim(task, previous, granted)
        if change.fenced is not None and self._judge is not None:
            self._note_loss(tx, task, change.fenced, job.max_errors, self._judge)
        self._apply(tx, task, change)
        return self._lease(tx, granted, change.task, now_ns)

    def _note_loss(
        self, tx: Transaction, task: TaskRow, lost: LeaseRow, max_errors: int, judge: Decide
    ) -> None:
        words = f"node {lost.node_id} was not heard any more, and another has claimed the task"
        evidence = Evidence(ended_by=EndedBy.LEASE_LOST, step=lost.step, message=words)
        run = task.budget.lose(lost.step).loss_run - 1
        history = _history(task.left_with(replace(task.budget, loss_run=run)), lost, max_errors)
        decision = judge(evidence, history, task.task_id, lost.node_id)
        self._append(tx, transitions.decision_events(lost, evidence, decision))

    def _lease(self, tx: Transaction, lease: LeaseRow, task: TaskRow, now_ns: int) -> Lease:
        payload_json = tx.payload_json(task.task_id)
        return views.lease_view(lease, task, payload_json, now_ns, self._clock.utc_now())

    @quick
    def heartbeat(self, lease_id: str, request: HeartbeatRequest) -> LeaseStatus:
        """Renew a lease, also a lapsed one that nobody has taken over; NotFound, Superseded."""
        metrics_json = None if request.metrics is None else dumps(request.metrics, "metrics")
        now_ns = self._clock.monotonic_ns()
        with self._store.transaction() as tx:
            task, lease = attempt(tx, lease_id)
            if transitions.holds(task, lease_id):
                self._note(lease.node_id)
                if request.step not in {None, lease.step}:
                    self._steps.moved(lease_id, now_ns)
                self._hear_imports(lease.job_id, request.imports)
                lease = progress.told(
                    lease, request.step, request.resumed_from, request.checkpoint_step
                )
                change = transitions.renew(task, lease, now_ns, None, metrics_json)
                self._apply(tx, task, change)
                return views.lease_status(change.lease or lease, self._clock.utc_now())
            refusal = self._refuse(tx, task, lease, "heartbeat")
        raise refusal

    @quick
    def complete(self, lease_id: str, request: CompleteRequest) -> CompleteAnswer:
        """Make an attempt's outputs the task's result, once; not accepted when superseded.

        Conflict, with the lease as it was, if an output is missing, foreign or of other bytes, or
        if this lease has completed with other outputs. NotFound.
        """
        metrics_json = None if request.metrics is None else dumps(request.metrics, "metrics")
        with self._store.transaction() as tx:
            task, lease = attempt(tx, lease_id)
            if lease.state is LeaseState.COMPLETED:
                return _completed_before(tx, task, lease, request)
            if not transitions.holds(task, lease_id):
                refusal = self._refuse(tx, task, lease, "complete")
                return CompleteAnswer(accepted=False, detail=str(refusal))
            required = views.payload(tx.payload_json(task.task_id)).outputs.required
            outputs = objects.check_outputs(tx, lease, request, required)
            objects.accept_outputs(tx, lease, outputs)
            lease = progress.told(lease, request.step, request.resumed_from, None)
            result = TaskResult(outputs, metrics_json or lease.metrics_json, request.resumed_from)
            self._apply(tx, task, transitions.complete(task, lease, result))
        return CompleteAnswer(accepted=True, detail=_ACCEPTED)

    def fail(self, lease_id: str, request: FailRequest, decide: Decide) -> FailAnswer:
        """End an attempt as `decide` says; repeated, the first decision is returned.

        NotFound, Superseded, Conflict if this lease has completed.
        """
        with self._store.transaction() as tx:
            task, lease = attempt(tx, lease_id)
            if lease.decision is not None:
                return _failed(lease.decision)
            if lease.state is LeaseState.COMPLETED:
                raise Conflict(f"lease {lease_id} has completed; it cannot fail any more")
            if transitions.holds(task, lease_id):
                return self._failed_now(tx, task, lease, request, decide)
            refusal = self._refuse(tx, task, lease, "fail")
        raise refusal

    def _failed_now(
        self,
        tx: Transaction,
        task: TaskRow,
        lease: LeaseRow,
        request: FailRequest,
        decide: Decide,
    ) -> FailAnswer:
        now_ns = self._clock.monotonic_ns()
        reason = clean(request.reason)
        told = request.evidence or Evidence(ended_by=EndedBy.WORKER_ERROR, message=reason)
        evidence = transitions.seen(told)
        lease = progress.told(lease, evidence.step, evidence.resumed_from, evidence.checkpoint_step)
        failure = fingerprint(evidence, lease.step)
        budget = task.budget.reached(evidence.checkpoint_step)
        max_errors = wanted_job(tx, task.job_id).max_errors
        repeated = budget.repeats(failure)
        task = progress.suspect(task, lease, repeated=repeated)
        history = _history(task.left_with(budget), lease, max_errors, repeated)
        known = {"loss_run": budget.lose(lease.step).loss_run - 1}
        history = history.model_copy(update={**known, "suspect_step": task.suspect_step})
        decision = decide(evidence, history, task.task_id, lease.node_id)
        events = transitions.decision_events(lease, evidence, decision)
        self._append(tx, (transitions.failure_event(lease, reason, evidence), *events))
        if task.suspect_step is not None and decision.retries:
            self._set_suspect_aside(tx, lease, task.suspect_step)
        left = transitions.spend(budget, lease, decision, failure)
        self._apply(tx, task, transitions.fail(task, lease, decision, left, now_ns))
        return _failed(decision)

    def sweep(self) -> int:
        """Make the tasks of all leases past their deadline claimable; return how many."""
        now_ns = self._clock.monotonic_ns()
        total = 0
        while True:
            with self._store.transaction() as tx:
                expired = tx.expired_leases(now_ns, SWEEP_BATCH)
                self._lapse(tx, expired, "deadline_passed")
            total += len(expired)
            if len(expired) < SWEEP_BATCH:
                return total

    def next_due_ns(self) -> int | None:
        """Return the monotonic instant at which a lease may lapse or a wait ends next."""
        with self._store.transaction() as tx:
            return tx.next_due_ns(self._clock.monotonic_ns())


_ACCEPTED = "accepted as the result of the task"


def _history(task: TaskRow, lease: LeaseRow, max_errors: int, repeated: bool = False) -> History:
    return History(
        attempt=f"{task.task_id}#{lease.attempt_number}",
        errors=task.errors,
        max_errors=max_errors,
        loss_run=task.loss_run,
        repeated=repeated,
    )


def _failed(decision: Decision) -> FailAnswer:
    state = TaskState.PENDING if decision.retries else TaskState.FAILED
    return FailAnswer(decision=decision, task_state=state)


def _completed_before(
    tx: Transaction, task: TaskRow, lease: LeaseRow, request: CompleteRequest
) -> CompleteAnswer:
    """Answer the winner as at first; Conflict if it now names other outputs."""
    outputs = objects.check_outputs(tx, lease, request, [])
    if task.result is not None and set(_identity(outputs)) != set(_identity(task.result.outputs)):
        raise Conflict(f"lease {lease.lease_id} has completed with other outputs")
    return CompleteAnswer(accepted=True, detail=_ACCEPTED)


def _identity(outputs: Sequence[OutputFile]) -> list[tuple[str, str, str]]:
    return [(output.path, output.key, output.sha256) for output in outputs]
