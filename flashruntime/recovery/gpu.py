"""Rules about accelerators: memory that is short, faults of the device, misuse by the job.

The texts are those of cudaGetErrorString and of PyTorch, JAX, Triton and NCCL around them.
"""

from flashruntime.protocol.failures import FailureClass as C
from flashruntime.recovery.names import MEMORY_ERRORS
from flashruntime.recovery.pattern import Pattern
from flashruntime.recovery.raised import Raised
from flashruntime.recovery.rule import RUNTIME, Rule, text_rule

_WATCHDOG = r"(?:\[[^\n]{0,200}\] Process group watchdog thread terminated with exception: )?"
_GPU = (
    rf"{_WATCHDOG}(?:(?:CUDA|HIP)(?: driver)? error: |cuda runtime error \(\d+\) : "
    r"|Triton Error \[(?:CUDA|HIP)\]: )"
)
_FAULT = (
    r"(?:uncorrectable ECC error|an illegal memory access|an illegal instruction"
    r"|misaligned address|unspecified launch failure|hardware stack error"
    r"|the launch timed out|(?:all )?(?:CUDA-capable )?device(?:s|\(s\)) (?:is/)?are busy"
    r"|uncorrectable NVLink error|Invalid access of peer GPU memory over nvlink|GPU is lost"
    r"|system not yet initialized|device(?: is)? lost)"
)
_XLA = frozenset({"XlaRuntimeError", "JaxRuntimeError"})
_STALE = "another process holds the GPU's memory: end it, or wait until it is gone"
_BUILD = "this build or these settings do not fit the GPU"
_SIZE = Pattern(r"Process \d+ has (\d+(?:\.\d+)?) ([KMGT]?i?B) memory in use")
_OWN = Pattern(
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
        types=MEMORY_ERRORS | RUNTIME, test=_is_stale, hint=_STALE,
    ),
    text_rule("gpu-memory", C.RESOURCE_EXHAUSTED, r"(?:CUDA|HIP|MPS backend|XPU) out of memory\b",
              "GPU memory", MEMORY_ERRORS | RUNTIME),
    text_rule("gpu-memory-library", C.RESOURCE_EXHAUSTED,
              rf"(?:{_GPU}|cuDNN error: )(?:out of memory\b"
              r"|CU(?:BLAS|DNN|SPARSE|SOLVER)_STATUS_ALLOC_FAILED)",
              "GPU memory"),
    text_rule("gpu-assert", C.APPLICATION_ERROR, rf"{_GPU}device-side assert triggered",
              "an index or a label is out of range"),
    text_rule("gpu-fault", C.ACCELERATOR_FAILURE, rf"{_GPU}{_FAULT}"),
    text_rule("gpu-fault-nccl", C.ACCELERATOR_FAILURE,
              rf"NCCL [Ee]rror(?s:.{{0,2000}})Cuda failure (?:\d+ )?'{_FAULT}"),
    text_rule("gpu-fault-xla", C.ACCELERATOR_FAILURE,
              r"(?:INTERNAL|UNKNOWN|FAILED_PRECONDITION): (?s:.{0,1000})CUDA_ERROR_(?:"
              r"ILLEGAL_ADDRESS|ECC_UNCORRECTABLE|LAUNCH_FAILED|HARDWARE_STACK_ERROR|MISALIGNED_ADDRESS"
              r"|NVLINK_UNCORRECTABLE|DEVICE_UNAVAILABLE|ILLEGAL_INSTRUCTION)", types=_XLA),
    text_rule("gpu-build", C.APPLICATION_ERROR,
              rf"{_GPU}(?:no kernel image is available|invalid device (?:function|ordinal)"
              r"|CUDA driver version is insufficient|the provided PTX was compiled with)", _BUILD),
    text_rule("gpu-fork", C.APPLICATION_ERROR, r"Cannot re-initialize CUDA in forked subprocess"),
)  # fmt: skip
