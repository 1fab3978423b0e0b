"""The training run of this process: what was prepared, and how it is saved and restored."""

import contextlib
import operator
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from flashruntime.attempt import NOTICE_EXIT_CODE, Attempt
from flashruntime.checkpoint import Snapshot
from flashruntime.checkpoint.cadence import Cadence
from flashruntime.checkpoint.manifest import check_step
from flashruntime.errors import CheckpointError, InvalidInput
from flashruntime.torch import restore, rng, shared
from flashruntime.torch.agreement import Agreement
from flashruntime.torch.finite import parameter_names
from flashruntime.torch.loader import ResumableLoader, resumable
from flashruntime.torch.ranks import Ranks
from flashruntime.torch.replicas import plain, replicate, with_own_buffers
from flashruntime.torch.split import Order, split
from flashruntime.torch.state import Packer, Staged

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
    _common: tuple[str, ...] = shared.COMMON
    _loader: ResumableLoader | None = None
    _order: Order | None = None
    _packer: Packer = field(default_factory=Packer)
    _cadence: Cadence | None = None
    _is_warm: bool = False
    _ranks: Ranks = field(default_factory=Ranks)
    _agreement: Agreement = field(init=False)

    def prepare(
        self,
        model: Stateful,
        optimizer: Stateful | None,
        dataloader: Any,
        stateful: Mapping[str, Stateful],
    ) -> tuple[Any, ResumableLoader | None]:
        """Restore everything from the newest valid checkpoint on which all ranks agree.

        Returns the model, wrapped where there are several ranks, and the resumable loader.
        """
        if self._objects:
            raise InvalidInput("prepare was called before; pass everything to one call")
        objects = _named(plain(model), optimizer, stateful)
        self._meet(model)
        self._objects = objects
        if not self.attempt.settings.allow_nan:
            self._packer.watched = parameter_names(plain(model))
        self._loader = None if dataloader is None else self._resumable(dataloader)
        self.attempt.install_notice()
        restored = restore.newest(self.attempt, self._ranks)
        if restored is not None:
            self._ranks.together(lambda: self._apply(restored))
        return (model if self._ranks.size == 1 else replicate(model)), self._loader

    def _meet(self, model: Stateful) -> None:
        self._ranks = Ranks.meet()
        self._agreement = Agreement(self._ranks, self.attempt)
        if not self._ranks.is_main:
            self.attempt.settings = replace(self.attempt.settings, step_file=None)
        if with_own_buffers(model):
            self._common = tuple(name for name in self._common if name != "model")

    def _resumable(self, dataloader: Any) -> ResumableLoader:
        if self._ranks.size == 1:
            return resumable(dataloader)
        part, self._order = split(dataloader, self._ranks.rank, self._ranks.size)
        loader = resumable(part)
        if self._order is not None:
            samples, self._order.seed = self._ranks.tell([len(part.dataset), self._order.seed])
            self._ranks.together(lambda: _check_samples(len(part.dataset), samples))
        return loader

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
        wanted = self._is_due(step, every)
        self._check_prepared(_named(model, optimizer, stateful))
        if self._loader is not None:
            self._loader.flash_position.touch()
        if wanted and (self._ranks.size == 1 or every != AUTO):
            notice = self._save(step)
        else:
            notice = self._look_around(step, wanted)
            self._warm_up(every)
        if notice:
            self._ranks.together(self.attempt.flush)
            self._stopped(step)

    def _look_around(self, step: int, wanted: bool) -> bool:
        """Save only if notice was given to any rank, or rank 0 wants to; return the former."""
        told = self._agreement.reach(step, wanted) if self._agreement.due() else None
        self.attempt.report(step)
        if told is None:
            return False
        if told.notice or told.wanted:
            self._save(step)
        return told.notice

    def _stopped(self, step: int) -> None:
        if self._ranks.is_main:
            self.attempt.event("stopped_on_notice", step=step)
        sys.exit(NOTICE_EXIT_CODE)

    def _save(self, step: int) -> bool:
        """Copy the state as it is now; the rest happens behind the training, on rank 0.

        Returns whether any rank has been given notice.
        """
        self._is_warm = True
        began_s = time.monotonic()
        staged, notice, others = self._agreement.gather(step, self._stage)
        if self._ranks.is_main:
            size = self._ranks.size

            def build() -> Snapshot:
                parts = {**staged.parts(), **others}
                refuse = staged.refuse_nan
                return Snapshot(step, parts, FRAMEWORK, world_size=size, refuse=refuse)

            stall_s = self.attempt.hand_over(step, build, began_s + self._packer.waited_s)
            if self._cadence is not None:
                self._cadence.saved(time.monotonic(), stall_s)
        return notice

    def _warm_up(self, every: object) -> None:
        """Have the memory of the first save ready before it is due: fresh pages are slow."""
        if not self._is_warm and every != AUTO and _interval(every) > 0:
            self._is_warm = True
            with contextlib.suppress(Exception):  # what it is, the save will tell, to all ranks
                state = self._state()
                self.attempt.behind(lambda: self._packer.reserve(state))

    def _is_due(self, step: int, every: object) -> bool:
        """Return whether this rank wants to save; under every="auto" it is for rank 0 to say."""
        if every != AUTO:
            interval = _interval(every)
            return interval > 0 and step % interval == 0
        if not self._ranks.is_main:
            return False
        now_s = time.monotonic()
        if self._cadence is None:
            self._cadence = self.attempt.cadence(now_s)
        self._cadence.step(now_s, saving=self.attempt.is_saving)
        return self._cadence.is_due(now_s)

    def _stage(self) -> Staged:
        self.attempt.flush()
        return self._packer.stage(self._state())

    def _state(self) -> dict[str, Any]:
        """Return the state of this rank, on rank 0 with what all have in common."""
        left_out = () if self._ranks.is_main else self._common
        objects = {
            name: each.state_dict() for name, each in self._objects.items() if name not in left_out
        }
        state: dict[str, Any] = {"objects": objects, "rng": rng.capture(), "data": None}
        if self._loader is not None:
            state["data"] = self._loader.flash_position.state_dict()
            state["rng"] = self._loader.flash_order.capture()
            if self._ranks.size > 1:
                state["data"]["ranks"] = self._ranks.size
                state["data"]["seed"] = None if self._order is None else self._order.seed
        return state

    def _apply(self, restored: restore.Restored) -> None:
        """Load the state into the prepared objects; what does not fit is the user's to know."""
        found, state = restored.found, restored.state
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
        if self._ranks.is_main:
            self.attempt.accept(found)

    def _load_position(self, state: dict[str, Any], where: str) -> None:
        if (self._loader is None) != (state["data"] is None):
            raise CheckpointError(f"{where}: only one of the two has a dataloader in prepare")
        if self._loader is not None:
            self._loader.flash_position.load_state_dict(state["data"], state["rng"])
            self._loader.flash_order.restore(state["rng"])
            if self._order is not None:
                self._order.seed = state["data"]["seed"]
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


def _check_samples(here: int, on_main: int) -> None:
    if here != on_main:
        raise InvalidInput(
            f"the data set has {here} samples here and {on_main} on rank 0; every rank must be "
            "given the whole data set, which prepare splits"
        )
