"""Name a failure by its strongest evidence; what the evidence does not show stays `unknown`.

Order: what the worker did itself, the signal and the control group's counters, the exit code, the
uncaught error. Each reason ends in the name of the rule that decided.
"""

import signal
from collections.abc import Callable, Sequence

from flashruntime.protocol.failures import EndedBy, Evidence
from flashruntime.protocol.failures import FailureClass as C
from flashruntime.recovery.cause import (
    ROOT_CAUSE_SIGNAL,
    explained,
    find_abort,
    find_cause,
    led_to_by_environment,
)
from flashruntime.recovery.names import WRAPPERS
from flashruntime.recovery.pattern import Pattern
from flashruntime.recovery.raised import MAX_QUOTE, Raised, errno_in_words, reported, told
from flashruntime.recovery.rules import ENVIRONMENT, first_fit
from flashruntime.recovery.signals import fatal_signal, signal_name
from flashruntime.recovery.tail import Tail, read_tail

Finding = tuple[C, str]

_NO_DETAIL = "no detail reported"
_NO_CAUSE = ", cause unknown"
_OF_PROCESS = {EndedBy.EXIT, EndedBy.SIGNAL, EndedBy.MISSING_OUTPUTS}
_ENDS = {C.APPLICATION_ERROR, C.DATA_ERROR}
_MAY_BE_OF_MEMORY = {C.WORKER_CRASH, C.COMMUNICATION_ERROR, C.UNKNOWN, C.RESOURCE_EXHAUSTED}
_GROUPS = {"ExceptionGroup", "BaseExceptionGroup"}
_CONTROL_PLANE = {"CoordinatorUnreachable", "StoreUnavailable"}
_QUOTA = "QuotaExceeded"
_BY_WORKER = "on the worker: "
_FULL = {"ENOSPC", "EDQUOT", "ENOMEM", "EMFILE", "ENFILE", "EAGAIN"}
_LIMITS = {signal.SIGXCPU: "its limit of CPU time", signal.SIGXFSZ: "its limit of file size"}
_LAUNCHER_STOPPED = Pattern(r"Process \d+ got signal: (\d{1,2})$")
_BUS_ERROR = "ERROR: Unexpected bus error encountered in worker."
_KERNEL_KILLED = Pattern(
    r"slurmstepd(?:-\S{1,100})?: error: Detected \d+ oom[_-]kill event"
    r"|(?:\[[ \d.]{1,30}\] )?(?:Memory cgroup out|Out) of memory: Killed process \d+ \("
)
_ROCM_FAULT = Pattern(r"Memory access fault by GPU node-\d+ ")
_USAGE_ERROR = Pattern(r"[\w.-]{1,200}(?: [\w-]{1,50})?: error: .+")
_NO_SCRIPT = Pattern(r"\S{1,500}: (?:can't open file '|No module named \S+$)")


def classify(evidence: Evidence) -> Finding:
    """Return what kind of failure the evidence shows, and a reason that a person understands."""
    kind, reason = _BY_END[evidence.ended_by](evidence)
    killed = evidence.oom_kills or 0
    if not killed or evidence.ended_by not in _OF_PROCESS:
        return kind, reason
    if fatal_signal(evidence) not in {None, signal.SIGKILL}:
        return kind, reason
    words = f"{killed} of its control group killed for memory meanwhile (oom_kill counter)"
    if kind in _ENDS:
        return _found("perhaps-memory", C.UNKNOWN, f"{reason}, but {words}")
    if kind in _MAY_BE_OF_MEMORY:
        reason = reason.replace(_NO_CAUSE, "")
        return _found("memory-counter", C.RESOURCE_EXHAUSTED, f"out of memory: {words}; {reason}")
    return kind, reason


def _found(rule: str, kind: C, reason: str) -> Finding:
    return kind, f"{reason} [rule {rule}]"


def _own(rule: str, kind: C, words: str, otherwise: str) -> Callable[[Evidence], Finding]:
    """The answer for an end that the worker or launcher brought about or saw itself."""

    def answer(evidence: Evidence) -> Finding:
        return _found(rule, kind, f"{words}: {(evidence.message or otherwise)[:MAX_QUOTE]}")

    return answer


def _spawn_error(evidence: Evidence) -> Finding:
    text = (evidence.message or _NO_DETAIL)[:MAX_QUOTE]
    if errno_in_words(evidence.message or "") in _FULL:
        return _found("spawn-resources", C.RESOURCE_EXHAUSTED, f"the process cannot start: {text}")
    return _found("spawn", C.APPLICATION_ERROR, f"the command could not start: {text}")


def _worker_error(evidence: Evidence) -> Finding:
    text = evidence.message or _NO_DETAIL
    error = reported(evidence.error_type or "", text.removeprefix(_BY_WORKER))
    if error.type_name in _CONTROL_PLANE:
        return _found("control-plane", C.CONTROL_PLANE_FAILURE, error.quote())
    if error.type_name == _QUOTA:
        return _found("store-quota", C.RESOURCE_EXHAUSTED, error.quote())
    rule = first_fit(error, ENVIRONMENT)
    if rule is not None and rule.kind is C.COMMUNICATION_ERROR:
        words = f"the worker's own transfers fail: {error.quote()}"
        return _found(f"worker-{rule.name}", C.NETWORK_DEGRADATION, words)
    if rule is not None:
        return _found(f"worker-{rule.name}", rule.kind, error.quote())
    words = f"the worker could not run the attempt: {text[:MAX_QUOTE]}"
    return _found("worker-error", C.UNKNOWN, words)


def _signal(evidence: Evidence) -> Finding:
    number = fatal_signal(evidence)
    name = signal_name(number)
    seen = name
    if evidence.ended_by is not EndedBy.SIGNAL:
        seen = f"{name}, reported as exit code {evidence.exit_code}"
    if number == signal.SIGTERM:
        return _asked_to_stop(evidence)
    if number == signal.SIGKILL and (line := _told_by_kernel(evidence)):
        return _found("memory-told", C.RESOURCE_EXHAUSTED, f"out of memory ({seen}): {line}")
    if number == signal.SIGKILL:
        words = f"the process was killed ({seen}){_NO_CAUSE}"
        return _found("killed", C.WORKER_CRASH, words)
    if number in _LIMITS:
        words = f"the process exceeded {_LIMITS[signal.Signals(number)]} ({seen})"
        return _found("limit", C.RESOURCE_EXHAUSTED, words)
    known = _last_words_before(number, seen, evidence)
    return known or _found("crashed", C.WORKER_CRASH, f"the process died of {seen}")


def _told_by_kernel(evidence: Evidence) -> str | None:
    """The line in which the kernel, or a scheduler that reads its counter, tells of the kill."""
    lines = (evidence.log_tail or "").splitlines()[-8:]
    return next((line[:MAX_QUOTE] for line in lines if _KERNEL_KILLED.match(line)), None)


def _asked_to_stop(evidence: Evidence) -> Finding:
    """A wait status proves the signal; a mere exit code of 143 anybody can choose."""
    if evidence.ended_by is EndedBy.SIGNAL:
        return _found("asked-to-stop", C.PREEMPTION, "the process was asked to stop (SIGTERM)")
    words = f"exit code {evidence.exit_code}, as after SIGTERM, but none was seen here"
    return _found("as-if-asked-to-stop", C.UNKNOWN, words)


def _last_words_before(number: int | None, seen: str, evidence: Evidence) -> Finding | None:
    """What a process printed as it crashed, where that says why."""
    last = read_tail(evidence.log_tail or "").last_line
    if number == signal.SIGBUS and last.startswith(_BUS_ERROR):
        words = f"{seen}: shared memory is too small: raise the container's shm_size"
        return _found("shared-memory-signal", C.RESOURCE_EXHAUSTED, words)
    if number != signal.SIGABRT:
        return None
    if _ROCM_FAULT.match(last):
        return _found("gpu-fault-rocm", C.ACCELERATOR_FAILURE, f"{last[:MAX_QUOTE]} ({seen})")
    cause = find_abort(evidence)
    rule = None if cause is None else first_fit(cause)
    if cause is None or rule is None:
        return None
    return _found(f"abort-{rule.name}", rule.kind, f"{_told(cause, rule.hint)} ({seen})")


def _exit(evidence: Evidence) -> Finding:
    if fatal_signal(evidence) is not None:
        return _signal(evidence)
    error = find_cause(evidence)
    if error is not None:
        return _exception(error, [told(each) for each in evidence.members])
    return _bare_exit(evidence, read_tail(evidence.log_tail or ""))


def _bare_exit(evidence: Evidence, tail: Tail) -> Finding:
    """Name an exit without an uncaught error: only what its code and last line prove together."""
    code, last = evidence.exit_code, tail.last_line[:MAX_QUOTE]
    if code in {126, 127}:
        what = "found but is not executable" if code == 126 else "not found"
        text = (evidence.message or f"a command was {what}")[:MAX_QUOTE]
        return _found("no-command", C.APPLICATION_ERROR, f"{text} (exit code {code})")
    if code == 2 and _USAGE_ERROR.fullmatch(last):
        return _found("usage", C.APPLICATION_ERROR, last)
    if code in {1, 2} and _NO_SCRIPT.match(last):
        return _found("no-script", C.APPLICATION_ERROR, last)
    if last and (rule := first_fit(Raised("", last, is_certain=False), ENVIRONMENT)):
        return _found(f"last-line-{rule.name}", rule.kind, _told(Raised("", last), rule.hint))
    return _found("bare-exit", C.UNKNOWN, f"exit code {code}, no error found in its log")


def _group(error: Raised, members: Sequence[Raised]) -> Finding:
    """An exception group is what all of its errors are; where they differ, it is not known."""
    rules = [first_fit(each) for each in members]
    known = [rule for rule in rules if rule is not None]
    words = f"{error.quote()}: {'; '.join(each.quote()[:100] for each in members[:3])}"[:MAX_QUOTE]
    same = {rule.kind in _ENDS for rule in known}
    if len(known) < len(rules) or len(same) != 1 or known[0].kind is C.UNKNOWN:
        return _found("group-differs", C.UNKNOWN, words)
    return _found(f"group-{known[0].name}", known[0].kind, words)


def _exception(error: Raised, members: Sequence[Raised] = ()) -> Finding:
    if error.type_name == "SignalException" and (found := _LAUNCHER_STOPPED.match(error.message)):
        kind = C.PREEMPTION if int(found[1]) == signal.SIGTERM else C.WORKER_CRASH
        return _found("launcher-stopped", kind, error.quote())
    if error.type_name in WRAPPERS:
        return _wrapper(error)
    if members and error.type_name in _GROUPS:
        return _group(error, members)
    rule = first_fit(error)
    if rule is None:
        return _of_its_cause(error)
    if rule.is_about_type and rule.kind in {C.APPLICATION_ERROR, C.DATA_ERROR}:
        first = led_to_by_environment(error)
        if first is not None:
            words = f"{error.quote()}, after {first.quote()}"
            return _found("turned-into-another", C.UNKNOWN, words)
    return _found(rule.name, rule.kind, _told(error, rule.hint))


def _of_its_cause(error: Raised) -> Finding:
    """An error that no rule knows is what it names as its cause, unless that was led to itself."""
    cause = explained(error)
    rule = None if cause is None else first_fit(cause)
    if cause is None or rule is None:
        return _found("error-not-known", C.UNKNOWN, error.quote())
    words = f"{error.quote()}, raised from {_told(cause, rule.hint)}"
    if rule.kind in _ENDS and led_to_by_environment(error) is not None:
        return _found("turned-into-another", C.UNKNOWN, words)
    return _found(f"raised-from-{rule.name}", rule.kind, words)


def _wrapper(error: Raised) -> Finding:
    """A launcher says that a process of its group has failed, but not of what."""
    root = error.message.rpartition("Root Cause (first observed failure):")[2]
    if found := ROOT_CAUSE_SIGNAL.search(root):
        number = int(found[1])
        words = f"a process of the group died of {signal_name(number)}"
        kind = C.PREEMPTION if number == signal.SIGTERM else C.WORKER_CRASH
        return _found("member-crashed", kind, words)
    rule = first_fit(error)
    if rule is not None:
        return _found(rule.name, rule.kind, error.quote())
    words = f"a process of the group failed without telling its error ({error.type_name})"
    return _found("member-failed", C.UNKNOWN, words)


def _told(error: Raised, hint: str | None) -> str:
    quote = error.quote() if error.type_name else error.message
    return quote if hint is None else f"{quote} ({hint})"


_BY_END: dict[EndedBy, Callable[[Evidence], Finding]] = {
    EndedBy.SPAWN_ERROR: _spawn_error,
    EndedBy.MISSING_OUTPUTS: _own(
        "missing-outputs", C.APPLICATION_ERROR,
        "the command ended well but required outputs are missing", _NO_DETAIL,
    ),
    EndedBy.BAD_INPUTS: _own(
        "bad-inputs", C.ARTIFACT_CORRUPTION, "an input is not what the job named", _NO_DETAIL
    ),
    EndedBy.STOPPED: _own(
        "stopped", C.PREEMPTION, "the worker ended the attempt itself",
        "preemption notice or shutdown",
    ),
    EndedBy.LEASE_LOST: _own(
        "lease-lost", C.NODE_LOSS, "the worker lost its lease", "it ended the attempt"
    ),
    EndedBy.HUNG: _own("hung", C.UNKNOWN, "the process hung", "no sign of progress"),
    EndedBy.WORKER_ERROR: _worker_error,
    EndedBy.SIGNAL: _signal,
    EndedBy.EXIT: _exit,
}  # fmt: skip
