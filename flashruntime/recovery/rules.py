"""What an uncaught error means: ordered, named rules, each anchored at the start of its message.

The first rule that fits decides. A rule without types speaks for itself, and so also for a bare
last line; one that goes by the type's name alone needs a closed traceback or an error file.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from flashruntime.protocol.failures import FailureClass as C
from flashruntime.recovery.names import (
    DATA_ERRORS,
    MEMORY_ERRORS,
    NETWORK_ERRORS,
    USER_ERRORS,
)
from flashruntime.recovery.raised import Raised

_RUNTIME = frozenset(["RuntimeError", "AcceleratorError", "Error", "DistBackendError"])
_GPU = r"(?:CUDA|HIP) error: "
_SHM = "shared memory is too small: raise the container's shm_size (docker run --shm-size)"
_STALE = "another process holds the GPU's memory: end it, or wait until it is gone"
_FILES = "too many open files: raise `ulimit -n`"
_LAYOUT = "the checkpoint does not match this source"


@dataclass(frozen=True, slots=True)
class Rule:
    """A name, what it looks at, and the class; `kind` None: the evidence is known to be unclear."""

    name: str
    kind: C
    pattern: re.Pattern[str] | None = None
    types: frozenset[str] | None = None
    test: Callable[[Raised], bool] | None = None
    hint: str | None = None

    @property
    def is_about_type(self) -> bool:
        """Whether a type's name alone decides, which a bare line cannot prove."""
        return self.pattern is None and self.test is None

    def fits(self, error: Raised) -> bool:
        """Return whether the error is what this rule speaks of."""
        if self.types is not None and error.type_name not in self.types:
            return False
        if self.pattern is not None and self.pattern.match(error.message) is None:
            return False
        return self.test is None or self.test(error)


def _text(
    name: str, kind: C, pattern: str, hint: str | None = None, types: frozenset[str] = _RUNTIME
) -> Rule:
    return Rule(name, kind, re.compile(pattern), types, hint=hint)


def _types(name: str, kind: C, names: str) -> Rule:
    return Rule(name, kind, types=frozenset(names.split()))


def _os(name: str, kind: C, numbers: str, hint: str | None = None) -> Rule:
    wanted = frozenset(numbers.split())
    return Rule(name, kind, test=lambda error: error.errno_name in wanted, hint=hint)


_SIZE = re.compile(r"Process \d+ has (\d+(?:\.\d+)?) ([KMGT]?i?B) memory in use")
_OWN = re.compile(
    r"this process has (\d+(?:\.\d+)?) ([KMGT]?i?B) memory|"
    r"allocated memory (\d+(?:\.\d+)?) ([KMGT]?i?B) is allocated by PyTorch"
)
_UNITS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


def _bytes(number: str, unit: str) -> float:
    return float(number) * 1024.0 ** _UNITS[unit.rstrip("iB")]


def held_by_another(error: Raised) -> bool:
    """Return whether an out-of-memory message says that another process holds most of the GPU.

    A process in a container may be listed under a foreign number itself; its own allocations,
    which the message tells too, then come near to what that "other" holds.
    """
    others = [_bytes(*found.groups()) for found in _SIZE.finditer(error.message)]
    own = [_bytes(m[1] or m[3], m[2] or m[4]) for m in _OWN.finditer(error.message)]
    return bool(others) and max(own, default=0.0) < max(others) / 4


def _is_stale(error: Raised) -> bool:
    return error.message.startswith(("CUDA out of memory.", "HIP out of memory.")) and (
        held_by_another(error)
    )


GPU_RULES = (
    Rule(
        "gpu-held-by-another-process", C.ACCELERATOR_FAILURE,
        types=MEMORY_ERRORS | _RUNTIME, test=_is_stale, hint=_STALE,
    ),
    _text("gpu-memory", C.RESOURCE_EXHAUSTED, r"(?:CUDA|HIP|MPS backend|XPU) out of memory\b",
          "GPU memory", MEMORY_ERRORS | _RUNTIME),
    _text("gpu-memory-library", C.RESOURCE_EXHAUSTED,
          rf"(?:{_GPU}|cuDNN error: )(?:out of memory\b"
          r"|CU(?:BLAS|DNN|SPARSE|SOLVER)_STATUS_ALLOC_FAILED)",
          "GPU memory"),
    _text("gpu-assert", C.APPLICATION_ERROR, rf"{_GPU}device-side assert triggered",
          "an index or a label is out of range"),
    _text("gpu-fault", C.ACCELERATOR_FAILURE,
          rf"{_GPU}(?:uncorrectable ECC error|an illegal memory access|an illegal instruction"
          r"|misaligned address|unspecified launch failure|hardware stack error"
          r"|the launch timed out|(?:all )?(?:CUDA-capable )?device\(s\) (?:is/)?are busy"
          r"|uncorrectable NVLink error|GPU is lost)"),
    _text("gpu-fork", C.APPLICATION_ERROR, r"Cannot re-initialize CUDA in forked subprocess"),
)  # fmt: skip

MEMORY_RULES = (
    _text("shared-memory", C.RESOURCE_EXHAUSTED,
          r"DataLoader worker \(pid \d+\) is killed by signal: Bus error|"
          r"unable to (?:allocate|resize) shared memory|unable to write to file </torch_", _SHM),
    _text("open-files", C.RESOURCE_EXHAUSTED,
          r"unable to open shared memory object .{0,200}Too many open files|Too many open files\."
          r"|received \d items of ancdata", _FILES),
    _text("host-memory", C.RESOURCE_EXHAUSTED,
          r"\[enforce fail at alloc_cpu\.cpp:\d+\]"
          r"|DefaultCPUAllocator: (?:not enough|can't allocate)"
          r"|unable to mmap .{0,300}Cannot allocate memory|can't start new thread$"),
    _types("host-memory-type", C.RESOURCE_EXHAUSTED, " ".join(sorted(MEMORY_ERRORS))),
    _os("disk-or-quota", C.RESOURCE_EXHAUSTED, "ENOSPC EDQUOT EFBIG"),
    _os("open-files-os", C.RESOURCE_EXHAUSTED, "EMFILE ENFILE", _FILES),
    _os("memory-or-processes-os", C.RESOURCE_EXHAUSTED, "ENOMEM EAGAIN"),
    _text("database-full", C.RESOURCE_EXHAUSTED, r"database or disk is full$",
          types=frozenset({"OperationalError"})),
    _text("xla-exhausted", C.RESOURCE_EXHAUSTED, r"RESOURCE_EXHAUSTED: ",
          types=frozenset({"XlaRuntimeError", "JaxRuntimeError"})),
    _os("storage", C.STORAGE_TIMEOUT, "EIO ESTALE EREMOTEIO ENODEV EUCLEAN"),
    _text("database-busy", C.STORAGE_TIMEOUT, r"(?:database is locked|disk I/O error)$",
          types=frozenset({"OperationalError"})),
)  # fmt: skip

NETWORK_RULES = (
    _text("duplicate-gpu", C.APPLICATION_ERROR, r"(?s:.{0,2000})\nDuplicate GPU detected",
          "two ranks share one GPU", frozenset({"DistBackendError"})),
    _text("nccl-memory", C.RESOURCE_EXHAUSTED,
          r"NCCL error(?s:.{0,2000})Cuda failure 2 'out of mem",
          "GPU memory"),
    _text("collective", C.COMMUNICATION_ERROR,
          r"NCCL [Ee]rror|NCCL communicator was aborted|\[\S{0,200}gloo/\S{1,200}\.cc:\d+\] "
          r"|Gloo connectFullMesh failed|Connection (?:closed|reset) by peer"
          r"|\[Rank \d+\]:? (?:Watchdog caught collective|Ranks? .{0,80}failed to pass monitored)"
          r"|Rank \d+ successfully reached monitoredBarrier"
          r"|Timed out waiting \d+ ?ms for (?:recv|send) operation"),
    _text("xla-unavailable", C.COMMUNICATION_ERROR, r"(?:UNAVAILABLE|DEADLINE_EXCEEDED): ",
          types=frozenset({"XlaRuntimeError", "JaxRuntimeError"})),
    _text("network-unclear", C.UNKNOWN,
          r"<urlopen error (?:unknown url|\[Errno 2\]|\[SSL: CERTIFICATE_VERIFY|\[Errno 13\])"
          r"|\[SSL: CERTIFICATE_VERIFY|HTTP Error 4(?!08|25|29)\d\d|4(?!08|25|29)\d\d Client Error"
          r"|(?s:.{0,2000})SSLCertVerificationError\(", types=NETWORK_ERRORS),
    _text("http-server", C.COMMUNICATION_ERROR,
          r"(?:HTTP Error |Server error '|Client error ')?(?:5\d\d|408|425|429)\b(?: |: |$)",
          types=frozenset(["HTTPError", "HTTPStatusError", "HfHubHTTPError"])),
    _os("network-os", C.COMMUNICATION_ERROR,
        "ENETUNREACH EHOSTUNREACH ENETDOWN ECONNRESET ECONNREFUSED ECONNABORTED ETIMEDOUT "
        "EADDRINUSE ENETRESET"),
    _types("network-type", C.COMMUNICATION_ERROR, " ".join(sorted(NETWORK_ERRORS - {"HTTPError"}))),
)  # fmt: skip

USER_RULES = (
    _text("checkpoint-layout", C.APPLICATION_ERROR,
          r"Error\(s\) in loading state_dict for \w+:"
          r"|loaded state dict (?:contains a parameter group"
          r"|has a different number of parameter groups)", _LAYOUT, _RUNTIME | {"ValueError"}),
    _text("checkpoint-layout-own", C.APPLICATION_ERROR,
          r"(?:the )?checkpoint (?:of step \d+ )?does not match this source",
          types=frozenset({"CheckpointError"})),
    _text("checkpoint-torn", C.ARTIFACT_CORRUPTION,
          r"PytorchStreamReader failed |Error while deserializing header: ",
          types=_RUNTIME | {"SafetensorError"}),
    _text("worker-killed", C.WORKER_CRASH,
          r"DataLoader worker \(pid \d+\) is killed by signal: "
          r"(?:Killed|Segmentation|Aborted|Terminated)"
          r"|process \d+ terminated with signal SIG"),
    _text("worker-killed-child", C.WORKER_CRASH, r"process \d+ terminated with signal SIG",
          types=frozenset({"ProcessExitedException"})),
    _text("input-truncated", C.DATA_ERROR,
          r"Ran out of input$|Compressed file ended before the end-of-stream",
          types=frozenset({"EOFError"})),
    _text("input-asked", C.APPLICATION_ERROR, r"EOF when reading a line$",
          types=frozenset({"EOFError"})),
    _text("tensor-misuse", C.APPLICATION_ERROR,
          r"mat1 and mat2 (?:shapes|must have)|The size of tensor a \(\d+\) must match"
          r"|Expected all tensors to be on the same device|shape '.{0,100}' is invalid for input"
          r"|Given (?:groups|normalized_shape|transposed)="
          r"|element \d+ of tensors does not require grad"
          r"|Trying to backward through the graph a second time|Sizes of tensors must match"
          r"|one of the variables needed for gradient computation has been modified by an inplace"
          r"|a leaf Variable that requires grad is being used in an in-place|stack expects each"
          r"|Found dtype \w+ but expected|expected (?:scalar type|m1 and m2|input\[)"
          r"|grad can be implicitly created only for scalar|running_mean should contain"
          r"|Numpy is not available$|dictionary changed size during iteration"
          r"|\s*An attempt has been made to start a new process before"
          r"|default_program\(|Dimension out of range|[01]D or [12]D target tensor expected"
          r"|inconsistent tensor size|The expanded size of the tensor \(\d+\) must match"),
    Rule("data-type", C.DATA_ERROR, types=DATA_ERRORS),
    Rule("user-type", C.APPLICATION_ERROR, types=USER_ERRORS),
)  # fmt: skip

ENVIRONMENT = (*GPU_RULES, *MEMORY_RULES, *NETWORK_RULES)
RULES = (*ENVIRONMENT, *USER_RULES)


def first_fit(error: Raised, rules: tuple[Rule, ...] = RULES) -> Rule | None:
    """Return the first rule that fits; one about types only where the error is certain."""
    for rule in rules:
        if (error.is_certain or not rule.is_about_type) and rule.fits(error):
            return rule
    return None
