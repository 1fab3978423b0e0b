"""The training run of this process: what was prepared, and how it is saved and restored."""

import operator
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from flashruntime.attempt import NOTICE_EXIT_CODE, Attempt
from flashruntime.checkpoint import Resume, Snapshot
from flashruntime.checkpoint.cadence import Cadence
from flashruntime.checkpoint.manifest import check_step
from flashruntime.errors import CheckpointError, InvalidInput
from flashruntime.torch import rng
from flashruntime.torch.finite import parameter_names
from flashruntime.torch.loader import ResumableLoader, resumable
from flashruntime.torch.state import Packer, unpack

FRAMEWORK = "torch"
AUTO = "auto"


class Stateful(Protocol):
    """Anything whose state can be saved: modules, optimizers, schedulers, scalers, your own."""

    def state_dict(self) -> Mapping[str, Any]:
        """Return the state as plain values, tensors and NumPy arrays."""
        ...

    def load_state_dict(self, state: Any, /) -> object:
        """Take over a state that state_dict returned."""
        ...


@dataclass(slots=True)
class Session:
    """One training run; `start_step` is the step of the checkpoint it went on from, or 0."""

    attempt: Attempt
    start_step: int = 0
    _objects: dict[str, Stateful] = field(default_factory=dict)
    _loader: ResumableLoader | None = None
    _packer: Packer = field(default_factory=Packer)
    _cadence: Cadence | None = None
    _is_warm: bool = False

    def prepare(
        self,
        model: Stateful,
        optimizer: Stateful | None,
        dataloader: Any,
        stateful: Mapping[str, Stateful],
    ) -> ResumableLoader | None:
        """Restore everything from the newest valid checkpoint; return the resumable loader."""
        _refuse_many_ranks()
        if self._objects:
            raise InvalidInput("prepare was called before; pass everything to one call")
        self._objects = _named(model, optimizer, stateful)
        if not self.attempt.settings.allow_nan:
            self._packer.watched = parameter_names(model)
        self._loader = None if dataloader is None else resumable(dataloader)
        self.attempt.install_notice()
        while (found := self.attempt.find()) is not None:
            try:
                state = unpack(found.parts)
            except CheckpointError as error:
                self.attempt.set_aside(found.step, str(error))
                continue
            found.parts.clear()
            self._apply(found, state)
            break
        return self._loader

    def checkpoint(
        self,
        model: Stateful,
        optimizer: Stateful | None,
        stateful: Mapping[str, Stateful],
        step: int,
        every: object,
    ) -> None:
        """Save where `every` says so or notice was given, in which case the process exits."""
        step = check_step(step)
        is_due = self._is_due(step, every)
        self._check_prepared(_named(model, optimizer, stateful))
        if self._loader is not None:
            self._loader.flash_position.touch()
        notice = self.attempt.notice.is_set()
        self.attempt.surface()
        if notice or is_due:
            self._save(step)
        else:
            self.attempt.report(step)
            self._warm_up(every)
        if notice:
            self.attempt.flush()
            self.attempt.event("stopped_on_notice", step=step)
            sys.exit(NOTICE_EXIT_CODE)

    def _save(self, step: int) -> None:
        """Copy the state as it is now; the rest happens behind the training."""
        self._is_warm = True
        began_s = time.monotonic()
        self.attempt.flush()
        make_parts = self._packer.stage(self._state())
        stall_s = self.attempt.hand_over(
            step, lambda: Snapshot(step, make_parts(), framework=FRAMEWORK), began_s
        )
        if self._cadence is not None:
            self._cadence.saved(time.monotonic(), stall_s)

    def _warm_up(self, every: object) -> None:
        """Have the memory of the first save ready before it is due: fresh pages are slow."""
        if not self._is_warm and every != AUTO and _interval(every) > 0:
            self._is_warm = True
            state = self._state()
            self.attempt.behind(lambda: self._packer.reserve(state))

    def _is_due(self, step: int, every: object) -> bool:
        if every != AUTO:
            interval = _interval(every)
            return interval > 0 and step % interval == 0
        now_s = time.monotonic()
        if self._cadence is None:
            self._cadence = self.attempt.cadence(now_s)
        self._cadence.step(now_s, saving=self.attempt.is_saving)
        return self._cadence.is_due(now_s)

    def _state(self) -> dict[str, Any]:
        objects = {name: each.state_dict() for name, each in self._objects.items()}
        state: dict[str, Any] = {"objects": objects, "rng": rng.capture(), "data": None}
        if self._loader is not None:
            state["data"] = self._loader.flash_position.state_dict()
            state["rng"] = self._loader.flash_order.capture()
        return state

    def _apply(self, found: Resume, state: dict[str, Any]) -> None:
        """Load the state into the prepared objects; what does not fit is the user's to know."""
        saved = state.get("objects", {})
        where = f"the checkpoint of step {found.step} does not match this source"
        unknown, missing = (
            sorted(saved.keys() - self._objects),
            sorted(self._objects - saved.keys()),
        )
        if unknown or missing:
            raise CheckpointError(
                f"{where}: it lacks {missing} and holds {unknown} beside what prepare was given; "
                "pass the same objects, or remove the checkpoint directory to start anew"
            )
        for name, each in self._objects.items():
            try:
                each.load_state_dict(saved[name])
            except Exception as error:
                raise CheckpointError(f"{where}: {name}: {error}") from error
        self._load_position(state, where)
        self.start_step = found.step
        self.attempt.accept(found)

    def _load_position(self, state: dict[str, Any], where: str) -> None:
        if (self._loader is None) != (state["data"] is None):
            raise CheckpointError(f"{where}: only one of the two has a dataloader in prepare")
        if self._loader is not None:
            self._loader.flash_position.load_state_dict(state["data"], state["rng"])
            self._loader.flash_order.restore(state["rng"])
        else:
            rng.restore(state["rng"])

    def _check_prepared(self, given: Mapping[str, Stateful]) -> None:
        for name in given:
            if name not in self._objects:
                raise InvalidInput(
                    f"checkpoint was given {name!r}, prepare was not: it could never be restored; "
                    "pass it to prepare as well"
                )


def _named(
    model: Stateful, optimizer: Stateful | None, stateful: Mapping[str, Stateful]
) -> dict[str, Stateful]:
    objects = {
        "model": model,
        **({} if optimizer is None else {"optimizer": optimizer}),
        **stateful,
    }
    for name, each in objects.items():
        if not (hasattr(each, "state_dict") and hasattr(each, "load_state_dict")):
            raise InvalidInput(
                f"{name} is a {type(each).__name__} without state_dict and load_state_dict; "
                "only what has both can be saved and restored"
            )
    return objects


def _interval(every: object) -> int:
    """Return the interval in steps; 0 means none, and every=None each call."""
    if every is None:
        return 1
    try:
        return max(0, 0 if every is False else operator.index(every))  # type: ignore[arg-type]
    except TypeError as error:
        raise InvalidInput(
            "every must be a number of steps (0 for none), 'auto', or None for each call, "
            f"not {every!r}"
        ) from error


def _refuse_many_ranks() -> None:
    if os.environ.get("WORLD_SIZE", "1") not in {"", "1"}:
        raise InvalidInput(
            "flashruntime.torch trains in a single process so far, but WORLD_SIZE is "
            f"{os.environ['WORLD_SIZE']}; launch one process, without torchrun"
        )
