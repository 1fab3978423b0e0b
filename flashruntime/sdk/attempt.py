"""One attempt of a local run: its directory, its process, and what it left."""

import hashlib
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from flashruntime.errors import InvalidInput
from flashruntime.launch import outputs, stacks, torchrun
from flashruntime.launch.environment import child_environment
from flashruntime.launch.outputs import Placed, Places
from flashruntime.launch.progress import TAIL_BYTES, TAIL_LINES, Progress, log_tail, read_progress
from flashruntime.launch.spec import LaunchSpec, WarmStart
from flashruntime.protocol.failures import EndedBy, Evidence
from flashruntime.protocol.jobs import Params
from flashruntime.protocol.tasks import Metrics
from flashruntime.sdk.plan import Plan

LOG_NAME = "launcher.log"
PRIVATE_NAME = ".flashruntime"
WARM_VARIABLE = "FLASHML_WARM_START"
_OFF = {"0", "false", "no", "off"}
# Of so many ranks at most, each adds its share to the end of the output that is looked at.
MAX_TAILS = 8


@dataclass(frozen=True, slots=True)
class AttemptDir:
    """The directory of an attempt, which is its FLASHML_OUTPUT_DIR; the command works in `work`."""

    root: Path

    @property
    def places(self) -> Places:
        """Where the process leaves files."""
        return Places(self.root, self.root / "work")

    @property
    def log(self) -> Path:
        """All that the process printed."""
        return self.root / LOG_NAME

    def private(self, name: str) -> Path:
        """A file between the process and the runtime."""
        return self.root / PRIVATE_NAME / name

    @property
    def progress(self) -> Progress:
        """How far the attempt says it is."""
        return read_progress(self.private("step.json"))

    def signs_of_life(self) -> tuple[int, int]:
        """Return what changes while the process prints or steps."""
        return _size(self.log), _mtime(self.private("step.json"))


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try at a task: `number` counts from 0 within this run.

    The checkpoint of `suspect_step` is not to be resumed from.
    """

    attempt_id: str
    task: int
    number: int
    directory: AttemptDir
    placed: Mapping[str, Placed]
    suspect_step: int | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """What a successful attempt gave, and warnings about it."""

    metrics: Metrics
    files: Mapping[str, Path]
    warnings: list[str]


def prepare(plan: Plan, task: int, number: int, root: Path) -> Attempt:
    """Make the directory of an attempt, with a fresh copy of the source in it.

    Raises InvalidInput for a source that cannot be used, OSError where the disk does not allow it.
    """
    directory = AttemptDir(root)
    directory.private("").mkdir(parents=True)
    files = directory.places.files
    plan.source().copy(files)
    names = plan.workload.outputs.files
    placed = {
        name: Placed(_digest(files / name), outputs.signature(files / name))
        for name in (*names.required, *names.optional)
        if (files / name).is_file() and not (files / name).is_symlink()
    }
    return Attempt(f"{plan.job_id}-{task:03d}-r{number}", task, number, directory, placed)


def launch_spec(plan: Plan, attempt: Attempt, params: Params) -> LaunchSpec:
    """Return the process of an attempt."""
    directory, workload = attempt.directory, plan.workload
    checkpoints = plan.task_dir(attempt.task) / "ckpt"
    checkpoints.mkdir(exist_ok=True)
    given = {
        "FLASHML_OUTPUT_DIR": str(directory.root),
        "FLASHML_CKPT_DIR": str(checkpoints),
        "FLASHML_CKPT_KEEP": str(workload.checkpoint.keep),
        "FLASHML_JOB_ID": plan.job_id,
        "FLASHML_ATTEMPT_ID": attempt.attempt_id,
        "FLASHML_RESTART_COUNT": str(attempt.number),
        "FLASHML_STEP_FILE": str(directory.private("step.json")),
        "FLASHML_ERROR_FILE": str(directory.private("error.json")),
        torchrun.ERROR_FILE_VARIABLE: str(directory.private("torchrun-error.json")),
    }
    if attempt.suspect_step is not None:
        given["FLASHML_SUSPECT_STEP"] = str(attempt.suspect_step)
    if plan.has_limits:
        given[stacks.DUMP_VARIABLE] = str(stacks.DUMP_SIGNAL)
    argv = command = tuple(workload.argv(params))
    if workload.is_torchrun:
        resources = workload.resources
        argv = torchrun.torchrun_argv(command, resources.nproc_per_node, resources.nnodes)
        command = torchrun.rank_argv(command)
    env = child_environment(_inherited(plan), workload.env, given)
    if shutil.which("python", path=env.get("PATH")) is None:
        argv, command = _with_own_python(argv), _with_own_python(command)
    files, error_file = directory.places.files, directory.private("error.json")
    warm = _warm_start(plan, attempt.number, command)
    return LaunchSpec(argv, files, env, directory.log, error_file, warm)


def _with_own_python(argv: tuple[str, ...]) -> tuple[str, ...]:
    return (sys.executable, *argv[1:]) if argv[0] == "python" else argv


def _warm_start(plan: Plan, number: int, argv: tuple[str, ...]) -> WarmStart | None:
    """Return how the attempt is forked; to wait for that pays where it will be done again."""
    workload = plan.workload
    if workload.warm is False or os.environ.get(WARM_VARIABLE, "").lower() in _OFF:
        return None
    ranks = workload.resources.nproc_per_node if workload.is_torchrun else None
    again = number > 0 or len(workload.tasks) > 1 or ranks is not None
    wanted = workload.warm is True or plan.limits.max_restarts > 0
    return WarmStart(argv, ranks, wait=again, prepare=wanted)


def _inherited(plan: Plan) -> dict[str, str]:
    """This process's environment, its virtual environment first on PATH, and a share of cores."""
    env = dict(os.environ)
    if sys.prefix != sys.base_prefix:
        own = str(Path(sys.executable).parent)
        env["PATH"] = os.pathsep.join([own, env.get("PATH", os.defpath)])
    if plan.parallel > 1:
        env.setdefault("OMP_NUM_THREADS", str(max(1, plan.cores // plan.parallel)))
    return env


def conclude(plan: Plan, attempt: Attempt, evidence: Evidence) -> Result | Evidence:
    """Return what an ended attempt gave, or the evidence of its failure, completed from files."""
    directory = attempt.directory
    names = plan.workload.outputs.files
    collected = outputs.collect(names, directory.places, attempt.placed)
    if evidence.ended_by is EndedBy.EXIT and evidence.exit_code == 0:
        if not collected.problems:
            metrics, warnings = outputs.read_metrics(directory.places, attempt.placed)
            return Result(metrics or {}, collected.found, warnings)
        text = "; ".join(collected.problems)
        evidence = Evidence(ended_by=EndedBy.MISSING_OUTPUTS, exit_code=0, message=text)
    evidence = torchrun.completed(evidence, directory.private("torchrun-error.json"))
    progress, workload = directory.progress, plan.workload
    ranks = workload.resources.nproc_per_node if workload.is_torchrun else 1
    tails = min(ranks, MAX_TAILS)
    known = {
        "step": progress.step,
        "checkpoint_step": progress.checkpoint_step,
        "log_tail": log_tail(directory.log, TAIL_LINES * tails, TAIL_BYTES * tails),
        "ranks": ranks,
    }
    return evidence.model_copy(update=known)


def leftovers(plan: Plan, attempt: Attempt) -> Mapping[str, Path]:
    """Return the declared outputs that a failed attempt has written nevertheless."""
    names = plan.workload.outputs.files
    return outputs.collect(names, attempt.directory.places, attempt.placed).found


def not_started(error: Exception) -> Evidence:
    """Return the evidence of an attempt whose process could not even be launched."""
    if isinstance(error, InvalidInput):
        return Evidence(ended_by=EndedBy.SPAWN_ERROR, message=str(error))
    return Evidence(
        ended_by=EndedBy.WORKER_ERROR, error_type=type(error).__name__, message=str(error)
    )


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _mtime(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
