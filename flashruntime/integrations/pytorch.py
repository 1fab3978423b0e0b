"""PyTorch: a script under torchrun, its ranks on this machine."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from flashruntime.protocol.argv import split
from flashruntime.sdk.workload import CommandWorkload, OutputSpec, Resources, Source


def ddp(  # noqa: PLR0917 (a public signature)
    script: str,
    source: Source | str | Path = ".",
    nproc_per_node: int = 2,
    nnodes: int = 1,
    script_args: str | Sequence[str] = "",
    env: Mapping[str, str] | None = None,
    *,
    outputs: OutputSpec | Sequence[str] | None = None,
    no_progress_s: float | None = None,
) -> CommandWorkload:
    """Return the workload that trains `script` with DistributedDataParallel.

    `script` is relative to `source`; with `import flashruntime.torch` in it the ranks resume
    together. A failure of one rank restarts all of them.
    """
    return CommandWorkload(
        [script, *words(script_args)],
        source=source,
        env=env,
        outputs=outputs,
        mode="torchrun",
        resources=Resources(nproc_per_node=nproc_per_node, nnodes=nnodes),
        no_progress_s=no_progress_s,
    )


def words(arguments: str | Sequence[str]) -> list[str]:
    """Return arguments as a list; text is split as a POSIX shell would."""
    if not isinstance(arguments, str):
        return list(arguments)
    return split(arguments) if arguments.strip() else []
