"""Hugging Face Trainer: its checkpoints inside the task's tree, its progress told to the runtime.

In the script: `TrainingArguments(output_dir=os.environ["FLASHML_CKPT_DIR"])`,
`Trainer(..., callbacks=[flashruntime_callback()])`, and
`trainer.train(resume_from_checkpoint=latest_checkpoint(args.output_dir))`.
"""

import json
import os
import re
import zipfile
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from flashruntime.attempt import NOTICE_EXIT_CODE, Attempt
from flashruntime.integrations.pytorch import words
from flashruntime.sdk.workload import CommandWorkload, OutputSpec, Resources, Source

_CHECKPOINT = re.compile(r"checkpoint-([0-9]+)")
STATE_NAME = "trainer_state.json"
_INDEX = "*.index.json"
_TENSORS = ("*.safetensors", "*.bin", "*.pt", "*.pth")
_WEIGHTS = ("model", "pytorch_model", "adapter_model")


def trainer(  # noqa: PLR0917 (a public signature)
    script: str,
    source: Source | str | Path = ".",
    script_args: str | Sequence[str] = "",
    nproc_per_node: int = 1,
    env: Mapping[str, str] | None = None,
    metric: str | None = None,
    *,
    maximize: bool = True,
    python: str = "python",
    no_progress_s: float | None = None,
) -> CommandWorkload:
    """Return the workload that runs a script around transformers.Trainer.

    More than one process runs under torchrun.
    """
    parallel = nproc_per_node > 1
    return CommandWorkload(
        [*([] if parallel else [python]), script, *words(script_args)],
        source=source,
        env=env,
        outputs=OutputSpec(primary_metric=metric, maximize=maximize),
        mode="torchrun" if parallel else "command",
        resources=Resources(nproc_per_node=nproc_per_node),
        no_progress_s=no_progress_s,
    )


def latest_checkpoint(directory: str | Path) -> str | None:
    """Return the newest complete `checkpoint-N` below `directory`, None if there is none.

    Complete means that its state, which Trainer writes last, can be read, that weights lie beside
    it, and that no file of tensors is cut short: a save that was interrupted is passed over. The
    order is that of N, never of file times.
    """
    try:
        names = os.listdir(directory)  # noqa: PTH208 (names alone, no Path objects)
    except OSError:
        return None
    found = [(int(match[1]), name) for name in names if (match := _CHECKPOINT.fullmatch(name))]
    for step, name in sorted(found, reverse=True):
        place = Path(directory) / name
        if _is_complete(place, step):
            return str(place)
    return None


def _is_complete(place: Path, step: int) -> bool:
    try:
        state = json.loads((place / STATE_NAME).read_bytes())
        shards = [
            place / shard
            for index in place.glob(_INDEX)
            for shard in json.loads(index.read_bytes())["weight_map"].values()
        ]
        tensors = {*shards, *(path for pattern in _TENSORS for path in place.glob(pattern))}
        whole = all(map(_is_whole, tensors))
    except (OSError, ValueError, RecursionError, TypeError, KeyError, AttributeError):
        return False
    weights = any(path.name.startswith(_WEIGHTS) for path in tensors)
    return whole and weights and isinstance(state, dict) and state.get("global_step") == step


def _is_whole(path: Path) -> bool:
    """Return whether a file ends where its own format says; what torch.save writes is a zip."""
    if path.suffix != ".safetensors":
        return zipfile.is_zipfile(path)
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        size_bytes = path.stat().st_size
        header = json.loads(file.read(min(length, size_bytes)))
    ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
    return bool(size_bytes == 8 + length + max(ends, default=0))


def flashruntime_callback(attempt: Attempt | None = None) -> Any:
    """Return a TrainerCallback that reports steps, logs metrics, and saves and stops on SIGTERM.

    Only here is transformers imported, by the script that has it anyway.
    """
    base: type = import_module("transformers").TrainerCallback
    kind = type("FlashruntimeCallback", (_Reports, base), {})
    return kind(attempt or Attempt.from_env())


class _Reports:
    """What the callback does; only the main rank writes."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt

    def on_train_begin(self, _args: Any, state: Any, _control: Any, **_: Any) -> None:
        self._attempt.install_notice()
        if state.is_world_process_zero and state.global_step:
            self._attempt.resumed_from = int(state.global_step)
            self._attempt.report(state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        if state.is_world_process_zero:
            self._attempt.report(state.global_step)
        if self._noticed(args):
            control.should_save = control.should_training_stop = True
        return control

    def _noticed(self, args: Any) -> bool:
        """Return whether any rank was given notice: all of them save and stop at the same step."""
        if args.world_size > 1:
            torch: Any = import_module("torch")
            flag = torch.tensor(int(self._attempt.notice.is_set()), device=args.device)
            torch.distributed.all_reduce(flag, torch.distributed.ReduceOp.MAX)
            if flag.item():
                self._attempt.notice.set()
        return self._attempt.notice.is_set()

    def on_save(self, _args: Any, state: Any, _control: Any, **_: Any) -> None:
        if state.is_world_process_zero:
            self._attempt.checkpoint_step = int(state.global_step)
            self._attempt.report(state.global_step)

    def on_log(self, _args: Any, state: Any, _control: Any, logs: Any = None, **_: Any) -> None:
        if state.is_world_process_zero:
            self._attempt.log({**(logs or {}), "step": state.global_step})

    def on_train_end(self, args: Any, _state: Any, _control: Any, **_: Any) -> None:
        if self._attempt.notice.is_set():
            if args.world_size > 1:
                distributed: Any = import_module("torch.distributed")
                distributed.barrier()
                distributed.destroy_process_group()
            raise SystemExit(NOTICE_EXIT_CODE)
