"""Name a failure by its strongest evidence; what the evidence does not show stays `unknown`.

Order: what the worker did itself, the signal, the exit code, the uncaught error.
"""

import errno
import signal
from collections.abc import Callable

from flashruntime.protocol.failures import EndedBy, Evidence, FailureClass
from flashruntime.recovery.signals import MAX_QUOTE, Raised, fatal_signal, raised, signal_name

Finding = tuple[FailureClass, str]


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_USER_ERRORS = _names("""
    ArithmeticError AssertionError AttributeError ConfigError FileExistsError
    FileNotFoundError FloatingPointError ImportError IndentationError IndexError InvalidInput
    IsADirectoryError KeyError
    LookupError ModuleNotFoundError NameError NotADirectoryError NotImplementedError
    OverflowError PermissionError RecursionError SyntaxError TabError TypeError
    UnboundLocalError ValueError ZeroDivisionError
""")
_DATA_ERRORS = _names("""
    BadGzipFile BadZipFile EOFError JSONDecodeError ParserError UnicodeDecodeError
    UnicodeError UnpicklingError
""")
_NETWORK_ERRORS = _names("""
    BrokenPipeError ChunkedEncodingError ConnectError ConnectTimeout ConnectionAbortedError
    ConnectionError ConnectionRefusedError ConnectionResetError DistBackendError
    DistNetworkError DistStoreError HTTPError IncompleteRead MaxRetryError NewConnectionError
    ProtocolError ReadError ReadTimeout ReadTimeoutError RemoteDisconnected
    RemoteProtocolError SSLError Timeout TimeoutError URLError gaierror
""")
_MEMORY_ERRORS = frozenset({"MemoryError", "OutOfMemoryError"})
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EAGAIN}
_STORAGE = {errno.EIO, errno.ESTALE, errno.EREMOTEIO}
_NETWORK = {errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.ECONNRESET}
_NETWORK |= {errno.ECONNREFUSED, errno.ETIMEDOUT, errno.EPIPE}
_RUNTIME_TEXTS: tuple[tuple[str, FailureClass], ...] = (
    ("CUDA out of memory", FailureClass.RESOURCE_EXHAUSTED),
    ("CUDA error: out of memory", FailureClass.RESOURCE_EXHAUSTED),
    ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED", FailureClass.RESOURCE_EXHAUSTED),
    ("CUDA error: device-side assert triggered", FailureClass.APPLICATION_ERROR),
    ("CUDA error: uncorrectable ECC error", FailureClass.ACCELERATOR_FAILURE),
    ("Error(s) in loading state_dict", FailureClass.APPLICATION_ERROR),
    ("NCCL error", FailureClass.COMMUNICATION_ERROR),
)


def classify(evidence: Evidence) -> Finding:
    """Return what kind of failure the evidence shows, and a reason that a person understands."""
    return _RULES[evidence.ended_by](evidence)


def _spawn_error(evidence: Evidence) -> Finding:
    error = Raised(evidence.error_type or "OSError", evidence.message or "")
    if error.errno in _FULL:
        return FailureClass.RESOURCE_EXHAUSTED, f"the process could not start: {error.quote()}"
    text = _quoted(evidence.message, "no detail reported")
    return FailureClass.APPLICATION_ERROR, f"the command could not start: {text}"


def _missing_outputs(evidence: Evidence) -> Finding:
    text = _quoted(evidence.message, "no detail reported")
    return (
        FailureClass.APPLICATION_ERROR,
        f"the command ended well but required outputs are missing: {text}",
    )


def _bad_inputs(evidence: Evidence) -> Finding:
    text = _quoted(evidence.message, "no detail reported")
    return FailureClass.ARTIFACT_CORRUPTION, f"an input is not what the job named: {text}"


def _stopped(evidence: Evidence) -> Finding:
    text = _quoted(evidence.message, "preemption notice or shutdown")
    return FailureClass.PREEMPTION, f"the worker ended the attempt itself: {text}"


def _lease_lost(evidence: Evidence) -> Finding:
    text = _quoted(evidence.message, "it ended the attempt")
    return FailureClass.NODE_LOSS, f"the worker lost its lease: {text}"


def _hung(evidence: Evidence) -> Finding:
    text = _quoted(evidence.message, "no sign of progress")
    return FailureClass.UNKNOWN, f"the process hung: {text}"


def _worker_error(evidence: Evidence) -> Finding:
    error = raised(evidence)
    finding = None if error is None else _environment(error)
    if finding is not None:
        return finding
    text = _quoted(evidence.message, "no detail reported")
    return FailureClass.UNKNOWN, f"the worker could not run the attempt: {text}"


def _signal(evidence: Evidence) -> Finding:
    number = fatal_signal(evidence)
    name = signal_name(number)
    if number == signal.SIGTERM:
        return FailureClass.PREEMPTION, f"the process was asked to stop ({name})"
    if number == signal.SIGKILL:
        return FailureClass.WORKER_CRASH, f"the process was killed ({name}), cause unknown"
    return FailureClass.WORKER_CRASH, f"the process died of {name}"


def _exit(evidence: Evidence) -> Finding:
    code = evidence.exit_code
    if fatal_signal(evidence) is not None:
        kind, reason = _signal(evidence)
        return kind, f"{reason}, reported as exit code {code}"
    error = raised(evidence)
    if error is not None:
        return _exception(error)
    if code in {126, 127}:
        what = "found but is not executable" if code == 126 else "not found"
        text = _quoted(evidence.message, f"a command was {what}")
        return FailureClass.APPLICATION_ERROR, f"{text} (exit code {code})"
    return FailureClass.UNKNOWN, f"exit code {code}, no error reported by the process"


def _exception(error: Raised) -> Finding:
    environment = _environment(error)
    if environment is not None:
        return environment
    name = error.type_name
    if name in _DATA_ERRORS:
        return FailureClass.DATA_ERROR, error.quote()
    if name in _USER_ERRORS:
        return FailureClass.APPLICATION_ERROR, error.quote()
    return FailureClass.UNKNOWN, error.quote()


def _environment(error: Raised) -> Finding | None:
    """Return what an error says about memory, disk, network or device; None if nothing."""
    name, text = error.type_name, error.message
    for start, kind in _RUNTIME_TEXTS:
        if text.startswith(start):
            return kind, error.quote()
    if "killed by signal: Bus error" in text and name == "RuntimeError":
        hint = "shared memory is probably too small: raise the container's shm_size"
        return FailureClass.RESOURCE_EXHAUSTED, f"{error.quote()} ({hint})"
    if name in _MEMORY_ERRORS or error.errno in _FULL:
        return FailureClass.RESOURCE_EXHAUSTED, error.quote()
    if error.errno in _STORAGE:
        return FailureClass.STORAGE_TIMEOUT, error.quote()
    if name in _NETWORK_ERRORS or error.errno in _NETWORK:
        return FailureClass.COMMUNICATION_ERROR, error.quote()
    return None


def _quoted(text: str | None, otherwise: str) -> str:
    return (text or otherwise)[:MAX_QUOTE]


_RULES: dict[EndedBy, Callable[[Evidence], Finding]] = {
    EndedBy.SPAWN_ERROR: _spawn_error,
    EndedBy.MISSING_OUTPUTS: _missing_outputs,
    EndedBy.BAD_INPUTS: _bad_inputs,
    EndedBy.STOPPED: _stopped,
    EndedBy.LEASE_LOST: _lease_lost,
    EndedBy.HUNG: _hung,
    EndedBy.WORKER_ERROR: _worker_error,
    EndedBy.SIGNAL: _signal,
    EndedBy.EXIT: _exit,
}
