"""What an uncaught error means: ordered, named rules, each anchored at the start of its message.

The first rule that fits decides. A rule without types speaks for itself, and so also for a bare
last line; one that goes by the type's name alone needs a closed traceback or an error file.
"""

from dataclasses import replace

from flashruntime.protocol.failures import FailureClass as C
from flashruntime.recovery.gpu import GPU_RULES
from flashruntime.recovery.names import (
    DATA_ERRORS,
    MEMORY_ERRORS,
    NETWORK_ERRORS,
    USER_ERRORS,
)
from flashruntime.recovery.pattern import Pattern
from flashruntime.recovery.raised import Raised
from flashruntime.recovery.rule import RUNTIME, Rule, os_rule, text_rule, types_rule

_SHM = "shared memory is too small: raise the container's shm_size (docker run --shm-size)"
_FILES = "too many open files: raise `ulimit -n`"
_LAYOUT = "the checkpoint does not match this source"


# What git, curl, wget, ssh and rsync print when the network fails them.
_TOOL = Pattern(
    r"(?:fatal|error): (?:RPC failed;|early EOF|the remote end hung up"
    r"|unable to access '[^'\n]{1,500}': (?:Could not resolve host|Failed to connect|Connection"
    r"|Operation timed|Recv failure|The requested URL returned error: (?:5\d\d|429)"
    r"|GnuTLS recv|OpenSSL SSL_(?:read|connect)))"
    r"|curl: \((?:5|6|7|18|28|35|52|55|56|92)\) "
    r"|ssh: (?:connect to host|Could not resolve hostname)"
    r"|wget: unable to resolve|rsync error: .{1,200}\(code (?:10|12|30|35)\)"
    r"|rsync: connection unexpectedly closed"
)


def _by_tool(error: Raised) -> bool:
    """Whether the program that failed has printed last that it was the network."""
    return any(_TOOL.match(line) for line in error.preceding)


MEMORY_RULES = (
    text_rule("shared-memory", C.RESOURCE_EXHAUSTED,
          r"DataLoader worker \(pid \d+\) is killed by signal: Bus error|"
          r"unable to (?:allocate|resize) shared memory|unable to write to file </torch_", _SHM),
    text_rule("open-files", C.RESOURCE_EXHAUSTED,
          r"unable to open shared memory object .{0,200}Too many open files|Too many open files\."
          r"|received \d items of ancdata", _FILES),
    text_rule("host-memory", C.RESOURCE_EXHAUSTED,
          r"\[enforce fail at alloc_cpu\.cpp:\d+\]"
          r"|DefaultCPUAllocator: (?:not enough|can't allocate)"
          r"|unable to mmap .{0,300}Cannot allocate memory|can't start new thread$"),
    types_rule("host-memory-type", C.RESOURCE_EXHAUSTED, " ".join(sorted(MEMORY_ERRORS))),
    os_rule("disk-or-quota", C.RESOURCE_EXHAUSTED, "ENOSPC EDQUOT EFBIG"),
    os_rule("open-files-os", C.RESOURCE_EXHAUSTED, "EMFILE ENFILE", _FILES),
    os_rule("memory-or-processes-os", C.RESOURCE_EXHAUSTED, "ENOMEM EAGAIN"),
    text_rule("database-full", C.RESOURCE_EXHAUSTED, r"database or disk is full$",
          types=frozenset({"OperationalError"})),
    text_rule("xla-exhausted", C.RESOURCE_EXHAUSTED, r"RESOURCE_EXHAUSTED: ",
          types=frozenset({"XlaRuntimeError", "JaxRuntimeError"})),
    os_rule("storage", C.STORAGE_TIMEOUT, "EIO ESTALE EREMOTEIO ENODEV EUCLEAN"),
    text_rule("database-busy", C.STORAGE_TIMEOUT, r"(?:database is locked|disk I/O error)$",
          types=frozenset({"OperationalError"})),
)  # fmt: skip

NETWORK_RULES = (
    text_rule("duplicate-gpu", C.APPLICATION_ERROR, r"(?s:.{0,2000})\nDuplicate GPU detected",
          "two ranks share one GPU", frozenset({"DistBackendError"})),
    text_rule("nccl-memory", C.RESOURCE_EXHAUSTED,
          r"NCCL error(?s:.{0,2000})Cuda failure 2 'out of mem",
          "GPU memory"),
    text_rule("collective", C.COMMUNICATION_ERROR,
          r"NCCL [Ee]rror|NCCL communicator was aborted|\[\S{0,200}gloo/\S{1,200}\.cc:\d+\] "
          r"|Gloo connectFullMesh failed|Connection (?:closed|reset) by peer"
          r"|\[Rank \d+\]:? (?:Watchdog caught collective|Ranks? .{0,80}failed to pass monitored)"
          r"|Rank \d+ successfully reached monitoredBarrier"
          r"|Timed out waiting \d+ ?ms for (?:recv|send) operation"),
    text_rule("xla-unavailable", C.COMMUNICATION_ERROR, r"(?:UNAVAILABLE|DEADLINE_EXCEEDED): ",
          types=frozenset({"XlaRuntimeError", "JaxRuntimeError"})),
    text_rule("network-unclear", C.UNKNOWN,
          r"<urlopen error (?:unknown url|\[Errno 2\]|\[SSL: CERTIFICATE_VERIFY|\[Errno 13\])"
          r"|\[SSL: CERTIFICATE_VERIFY|HTTP Error 4(?!08|25|29)\d\d|4(?!08|25|29)\d\d Client Error"
          r"|(?s:.{0,2000})SSLCertVerificationError\(", types=NETWORK_ERRORS),
    text_rule("http-server", C.COMMUNICATION_ERROR,
          r"(?:HTTP Error |Server error '|Client error ')?(?:5\d\d|408|425|429)\b(?: |: |$)",
          types=frozenset(["HTTPError", "HTTPStatusError", "HfHubHTTPError"])),
    os_rule("network-os", C.COMMUNICATION_ERROR,
        "ENETUNREACH EHOSTUNREACH ENETDOWN ECONNRESET ECONNREFUSED ECONNABORTED ETIMEDOUT "
        "EADDRINUSE ENETRESET"),
    text_rule("cloud-service", C.COMMUNICATION_ERROR,
              r"An error occurred \((?:SlowDown|Throttling\w*|ThrottledException|RequestTimeout"
              r"|RequestLimitExceeded|TooManyRequestsException|InternalError|InternalFailure"
              r"|ServiceUnavailable\w*|5\d\d|429)\)", types=frozenset({"ClientError"})),
    Rule("tool-network", C.COMMUNICATION_ERROR, types=frozenset({"CalledProcessError"}),
         test=_by_tool),
    types_rule("network-type", C.COMMUNICATION_ERROR,
               " ".join(sorted(NETWORK_ERRORS - {"HTTPError"}))),
)  # fmt: skip

USER_RULES = (
    text_rule("checkpoint-layout", C.APPLICATION_ERROR,
          r"Error\(s\) in loading state_dict for \w+:"
          r"|loaded state dict (?:contains a parameter group"
          r"|has a different number of parameter groups)", _LAYOUT, RUNTIME | {"ValueError"}),
    text_rule("checkpoint-layout-own", C.APPLICATION_ERROR,
          r"(?:the )?checkpoint (?:of step \d+ )?does not match this source",
          types=frozenset({"CheckpointError"})),
    text_rule("checkpoint-torn", C.ARTIFACT_CORRUPTION,
          r"PytorchStreamReader failed |Error while deserializing header: ",
          types=RUNTIME | {"SafetensorError"}),
    text_rule("worker-killed", C.WORKER_CRASH,
          r"DataLoader worker \(pid \d+\) is killed by signal: "
          r"(?:Killed|Segmentation|Aborted|Terminated)"
          r"|process \d+ terminated with signal SIG"),
    text_rule("worker-killed-child", C.WORKER_CRASH, r"process \d+ terminated with signal SIG",
          types=frozenset({"ProcessExitedException"})),
    text_rule("input-truncated", C.DATA_ERROR,
          r"Ran out of input$|Compressed file ended before the end-of-stream",
          types=frozenset({"EOFError"})),
    text_rule("input-asked", C.APPLICATION_ERROR, r"EOF when reading a line$",
          types=frozenset({"EOFError"})),
    text_rule("tensor-misuse", C.APPLICATION_ERROR,
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
_ENDS = {C.APPLICATION_ERROR, C.DATA_ERROR}


def first_fit(error: Raised, rules: tuple[Rule, ...] = RULES) -> Rule | None:
    """Return the first rule that fits; one about types only where the error is certain.

    A type that no rule knows counts as the nearest of its bases that one knows. Where another of
    its bases speaks for the opposite, neither is evidence.
    """
    rule = _first(error, rules)
    if rule is not None or not error.is_certain:
        return rule
    fits = [found for name in error.bases if (found := _first(_as(error, name), rules))]
    sides = {found.kind in _ENDS for found in fits}
    return fits[0] if len(sides) == 1 else None


def _first(error: Raised, rules: tuple[Rule, ...]) -> Rule | None:
    for rule in rules:
        if (error.is_certain or not rule.is_about_type) and rule.fits(error):
            return rule
    return None


def _as(error: Raised, base: str) -> Raised:
    return replace(error, type_name=base)
