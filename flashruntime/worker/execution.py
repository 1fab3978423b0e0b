"""One attempt, from its inputs to its report."""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from flashruntime.config import WorkerSettings
from flashruntime.errors import ArtifactCorrupt, FlashError, InvalidInput, NotFound, Superseded
from flashruntime.launch import outputs, stacks, torchrun
from flashruntime.launch.cores import usable_cores
from flashruntime.launch.environment import child_environment
from flashruntime.launch.outputs import Placed
from flashruntime.launch.progress import log_tail, read_progress
from flashruntime.launch.spec import LaunchSpec, Process
from flashruntime.protocol.base import check_key
from flashruntime.protocol.failures import EndedBy, Evidence
from flashruntime.protocol.tasks import CompleteRequest, FailRequest, Lease
from flashruntime.worker import events, transfer
from flashruntime.worker.control import AttemptControl, NoticeOver, StopRequest
from flashruntime.worker.heartbeat import Heartbeat
from flashruntime.worker.output import OutputShipper
from flashruntime.worker.ports import Tools
from flashruntime.worker.progress import ProgressWatch
from flashruntime.worker.relay import Relay
from flashruntime.worker.warmth import Warmth, imported_by, warmth_of
from flashruntime.worker.workspace import Workspace

LOST_GRACE_S = 0.5
KILL_MARGIN_S = 15.0
MAX_MARGIN_S = 3.0
MARGIN_OF_NOTICE = 0.25


@dataclass(frozen=True, slots=True)
class AttemptSettings:
    """Where attempts keep their files, the environment they inherit from, how they are started."""

    checkpoint_root: Path
    environ: Mapping[str, str]
    warmth: Warmth | None = None

    @classmethod
    def of(cls, settings: WorkerSettings, environ: Mapping[str, str]) -> "AttemptSettings":
        """Take what attempts need from the worker's settings; several share its cores."""
        shared = dict(environ)
        if settings.slots > 1:
            shared.setdefault("OMP_NUM_THREADS", str(max(1, usable_cores() // settings.slots)))
        warmth = warmth_of(shared, is_on=settings.warm_start)
        return cls(settings.checkpoint_root, shared, warmth)


class Execution:
    """Runs the attempt that a lease allows, and reports how it ended."""

    def __init__(
        self,
        lease: Lease,
        tools: Tools,
        settings: AttemptSettings,
        workspace: Workspace,
        stop: StopRequest,
    ) -> None:
        self._lease = lease
        self._tools = tools
        self._settings = settings
        self._workspace = workspace
        self._stop = stop
        self._control = AttemptControl(stop)
        self._heartbeat = Heartbeat(lease, tools.connect, self._control, workspace.step_file)
        self._placed: dict[str, Placed] = {}
        self._checkpoints = settings.checkpoint_root / check_key(f"{lease.job_id}/{lease.task_id}")
        self._relay = Relay(lease, self._checkpoints, self._control, tools.checkpoints)

    def run(self) -> None:
        """Run to the report, or to the moment at which there is nothing left to report."""
        lease, control = self._lease, self._control
        ids = {"lease_id": lease.lease_id, "task_id": lease.task_id}
        with ExitStack() as stack:
            stack.enter_context(self._heartbeat)
            output = OutputShipper(lease.lease_id, self._tools.client, control, self._workspace.log)
            stack.enter_context(output)
            stack.enter_context(self._relay)
            try:
                self._report(self._attempt(), output)
            except Superseded as error:
                events.warning("attempt_discarded", **ids, reason=str(error))
            except NoticeOver:
                events.warning("attempt_left", **ids, reason="the notice is over, the lease lapses")

    def _attempt(self) -> CompleteRequest | Evidence:
        """Run the process and keep what it made."""
        try:
            self._workspace.create()
            if (problem := self._prepare()) is not None:
                return problem
            evidence = self._run_process()
            if evidence.ended_by is EndedBy.EXIT and evidence.exit_code == 0:
                self._relay.close()
                return self._result()
            self._relay.finish()
            return evidence
        except (Superseded, NoticeOver):
            raise
        except (OSError, ValueError, FlashError) as error:
            kind, text = type(error).__name__, f"on the worker: {error}"
            return Evidence(ended_by=EndedBy.WORKER_ERROR, error_type=kind, message=text)

    def _prepare(self) -> Evidence | None:
        payload = self._lease.payload
        if not payload.command:
            text = f"workload type {payload.type!r} has no command; this worker runs commands only"
            return Evidence(ended_by=EndedBy.BAD_INPUTS, message=text)
        try:
            self._placed = transfer.fetch_inputs(
                payload.inputs, self._workspace, self._tools.client, self._control
            )
        except (NotFound, ArtifactCorrupt, InvalidInput, FileExistsError) as error:
            return Evidence(ended_by=EndedBy.BAD_INPUTS, message=str(error))
        self._checkpoints.mkdir(parents=True, exist_ok=True)
        self._relay.fetch()
        if self._stop.requested:
            return Evidence(ended_by=EndedBy.STOPPED, message="stopped before it started")
        return None

    def _run_process(self) -> Evidence:
        control, stop = self._control, self._stop
        process = self._tools.launcher.launch(self._spec(), control.process_ended)
        try:
            events.info("attempt_started", lease_id=self._lease.lease_id)
            self._tell_imports()
            with self._watch(process) as watch:
                control.await_change()
            if stop.requested and control.lost is None:
                margin_s = min(MAX_MARGIN_S, stop.notice_s * MARGIN_OF_NOTICE)
                process.stop(max(0.0, stop.remaining_s() - margin_s))
                control.await_end_or_loss(stop.remaining_s())
        finally:
            process.stop(LOST_GRACE_S)
        evidence = process.wait(min(KILL_MARGIN_S, stop.remaining_s()))
        control.check()
        if evidence is None:
            return Evidence(ended_by=EndedBy.WORKER_ERROR, message="the process cannot be killed")
        evidence = watch.explained(evidence)
        evidence = torchrun.completed(evidence, self._workspace.torchrun_error_file)
        done = read_progress(self._workspace.step_file)
        return evidence.model_copy(
            update={
                "step": done.step,
                "checkpoint_step": done.checkpoint_step,
                "resumed_from": done.resumed_from,
                "ranks": torchrun.ranks_of(self._lease.payload.command or ()),
            }
        )

    def _watch(self, process: Process) -> ProgressWatch:
        workspace, limit_s = self._workspace, self._lease.payload.no_progress_s
        files = workspace.log, workspace.step_file
        return ProgressWatch(process, *files, limit_s, self._lease.lease_id)

    def _tell_imports(self) -> None:
        """Let workers that may have to go on with this script know what it imports."""
        if self._settings.warmth is not None:
            argv = tuple(self._lease.payload.command or ())
            self._heartbeat.imports = imported_by(argv, self._workspace.files) or None

    def _spec(self) -> LaunchSpec:
        lease, workspace = self._lease, self._workspace
        given = {
            "FLASHML_OUTPUT_DIR": str(workspace.output),
            "FLASHML_CKPT_DIR": str(self._checkpoints),
            "FLASHML_CKPT_KEEP": str(lease.payload.checkpoint.keep),
            "FLASHML_JOB_ID": lease.job_id,
            "FLASHML_ATTEMPT_ID": lease.lease_id,
            "FLASHML_RESTART_COUNT": str(lease.attempt_number - 1),
            "FLASHML_STEP_FILE": str(workspace.step_file),
            "FLASHML_ERROR_FILE": str(workspace.error_file),
            torchrun.ERROR_FILE_VARIABLE: str(workspace.torchrun_error_file),
        }
        if lease.payload.no_progress_s is not None:
            given[stacks.DUMP_VARIABLE] = str(stacks.DUMP_SIGNAL)
        if lease.suspect_step is not None:
            given["FLASHML_SUSPECT_STEP"] = str(lease.suspect_step)
        argv, job = tuple(lease.payload.command or ()), lease.payload.env
        warmth = self._settings.warmth
        return LaunchSpec(
            argv=argv,
            cwd=workspace.files,
            env=child_environment(self._settings.environ, job, given),
            log_path=workspace.log,
            error_file=workspace.error_file,
            warm=None if warmth is None else warmth.start_of(argv, workspace.files, job),
        )

    def _result(self) -> CompleteRequest | Evidence:
        lease, workspace = self._lease, self._workspace
        collected = outputs.collect(lease.payload.outputs, workspace.places, self._placed)
        if collected.problems:
            text = "required outputs: " + "; ".join(collected.problems)
            return Evidence(ended_by=EndedBy.MISSING_OUTPUTS, exit_code=0, message=text)
        metrics, warnings = outputs.read_metrics(workspace.places, self._placed)
        transfer.warn_in_log(workspace, lease.lease_id, warnings)
        uploaded = transfer.upload(collected, lease, self._tools.client, self._control)
        done = read_progress(workspace.step_file)
        return CompleteRequest(
            outputs=uploaded, metrics=metrics, step=done.step, resumed_from=done.resumed_from
        )

    def _report(self, result: CompleteRequest | Evidence, output: OutputShipper) -> None:
        stopping = isinstance(result, Evidence) and self._stop.requested
        output.drain(self._stop.remaining_s() / 2 if stopping else float("inf"))
        if isinstance(result, CompleteRequest):
            try:
                self._complete(result)
                return
            except (NotFound, InvalidInput) as error:
                result = Evidence(ended_by=EndedBy.WORKER_ERROR, message=f"refused: {error}")
        self._fail(result)

    def _complete(self, result: CompleteRequest) -> None:
        lease_id = self._lease.lease_id
        answer = self._control.until_answered(lambda: self._tools.client.complete(lease_id, result))
        event = "attempt_accepted" if answer.accepted else "attempt_refused"
        events.info(event, lease_id=lease_id, task_id=self._lease.task_id, detail=answer.detail)

    def _fail(self, evidence: Evidence) -> None:
        evidence = evidence.model_copy(update={"log_tail": log_tail(self._workspace.log)})
        report_failure(self._lease, evidence, self._tools, self._control)


def report_failure(lease: Lease, evidence: Evidence, tools: Tools, control: AttemptControl) -> None:
    """Report a failed or handed back attempt until the coordinator answers."""
    request = FailRequest(reason=describe(evidence), evidence=evidence)
    answer = control.until_answered(lambda: tools.client.fail(lease.lease_id, request))
    events.info(
        "attempt_failed",
        lease_id=lease.lease_id,
        task_id=lease.task_id,
        reason=request.reason,
        action=answer.decision.action.value,
    )


def describe(evidence: Evidence) -> str:
    """Say in a few words how an attempt ended."""
    status = f"exit code {evidence.exit_code}"
    if evidence.signal is not None:
        status = f"killed by signal {evidence.signal}"
    if evidence.ended_by in {EndedBy.EXIT, EndedBy.SIGNAL}:
        error = ": ".join(filter(None, [evidence.error_type, evidence.message]))
        return f"{status}; {error}"[:4000] if error else status
    words = evidence.ended_by.value.replace("_", " ")
    return f"{words}: {evidence.message or status}"[:4000]
