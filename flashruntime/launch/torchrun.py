"""PyTorch's torchrun as a command: its argv, and the error file that it leaves."""

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from flashruntime.errors import InvalidInput
from flashruntime.launch.error_file import MAX_ERROR_FILE_BYTES
from flashruntime.launch.files import open_regular
from flashruntime.protocol.failures import EndedBy, Evidence

WRAPPER = "ChildFailedError"
_MAIN = Path(__file__).with_name("torchrun_main.py")
_PROCESSES = re.compile(r"--nproc[-_]per[-_]node[= ](\d{1,4})\b")
ERROR_FILE_VARIABLE = "TORCHELASTIC_ERROR_FILE"


def torchrun_argv(command: Sequence[str], processes: int, nodes: int = 1) -> tuple[str, ...]:
    """Return the argv that runs a script in `processes` ranks on this machine.

    `command` is `train.py ARGS`, `python train.py ARGS` or `python -m MODULE ARGS`. Restarts are
    left to whoever launches it, so that one policy decides about them.
    """
    if nodes != 1:
        raise InvalidInput(f"nnodes={nodes}: a local run has one node; use nnodes=1")
    python, *words = rank_argv(command)
    return (
        python, str(_MAIN), "--standalone", "--nnodes=1", "--local-addr=127.0.0.1",
        f"--nproc-per-node={processes}", "--max-restarts=0", *words,
    )  # fmt: skip


def rank_argv(command: Sequence[str]) -> tuple[str, ...]:
    """Return the argv of one rank."""
    words = list(command)
    python = sys.executable
    if Path(words[0]).name.startswith("python"):
        python = words.pop(0)
    if not words or (words[0].startswith("-") and words[0] != "-m"):
        raise InvalidInput(
            f"mode='torchrun' runs a script or `-m MODULE`, not {' '.join(command)!r}; "
            "give the script as the first word after python"
        )
    return (python, *words)


def ranks_of(argv: Sequence[str]) -> int:
    """Return how many ranks a torchrun command says that it starts here, 1 for any other."""
    launchers = ("torchrun", "torch.distributed.run", _MAIN.name, f".{_MAIN.stem}")
    if not any(word.endswith(launchers) for word in argv):
        return 1
    found = _PROCESSES.search(" ".join(argv))
    return max(1, int(found[1])) if found else 1


def completed(evidence: Evidence, path: Path) -> Evidence:
    """Return the evidence with torchrun's error file, where no process told its error itself."""
    if evidence.ended_by is not EndedBy.EXIT or not evidence.exit_code:
        return evidence
    if evidence.error_type not in {None, WRAPPER}:
        return evidence
    kind, said = read_torchrun_error(path)
    if said is None:
        return evidence
    return evidence.model_copy(update={"error_type": kind, "message": said})


def read_torchrun_error(path: Path) -> tuple[str | None, str | None]:
    """Return type and message of the first rank's error that torchrun has seen, if it did."""
    try:
        with open_regular(path) as file:
            message = json.loads(file.read(MAX_ERROR_FILE_BYTES))["message"]
        text = message["message"] if isinstance(message, dict) else message
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None, None
    if not isinstance(text, str):
        return None, None
    kind, colon, rest = text.encode("utf-8", "replace").decode().partition(":")
    return (kind, rest.strip()) if colon and kind.replace(".", "_").isidentifier() else (None, text)
