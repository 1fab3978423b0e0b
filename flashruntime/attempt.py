"""What a job's own code uses, without any framework: resume, save, log, report, notice.

Everything comes from the FLASHML_* variables that the launcher sets. Without them (a plain
`python train.py`) checkpoints go to ./flashruntime-ckpt, from where the next run goes on; remove
that directory to start anew. Events are JSON lines on stdout and in events.jsonl beside the step
file.
"""

import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import FrameType

from pydantic import JsonValue

from flashruntime.checkpoint import DEFAULT_KEEP, Chain, Claim, Rejection, Resume, Snapshot
from flashruntime.checkpoint.buffers import HostBuffers
from flashruntime.checkpoint.cadence import DEFAULT_MTBF_S, Cadence
from flashruntime.checkpoint.commit import check
from flashruntime.checkpoint.ending import at_end
from flashruntime.checkpoint.files import Buffer
from flashruntime.checkpoint.manifest import check_step
from flashruntime.checkpoint.snapshot import NICE, Saver
from flashruntime.errors import ConfigError, FlashError, InvalidInput, NotFinite
from flashruntime.launch.telling import Teller, replace_file
from flashruntime.protocol.base import strict_dumps
from flashruntime.protocol.checkpoints import Manifest
from flashruntime.protocol.plain import plain

DEFAULT_CKPT_DIR = "flashruntime-ckpt"
METRICS_NAME = "metrics.json"
NOTICE_EXIT_CODE = 143


@dataclass(frozen=True, slots=True)
class Settings:
    """Where an attempt lives; `restart_count` orders the attempts of a job."""

    ckpt_dir: Path
    output_dir: Path
    claim: Claim
    keep: int | None = DEFAULT_KEEP
    step_file: Path | None = None
    mtbf_s: float = DEFAULT_MTBF_S
    suspect_step: int | None = None
    allow_nan: bool = False

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> "Settings":
        """Read the FLASHML_* variables; ConfigError names the one that is wrong."""
        step_file = env.get("FLASHML_STEP_FILE")
        try:
            claim = Claim(
                attempt_id=env.get("FLASHML_ATTEMPT_ID") or f"local-{uuid.uuid4().hex}",
                job_id=env.get("FLASHML_JOB_ID") or "local",
                epoch=_integer(env, "FLASHML_RESTART_COUNT", 0),
            )
        except InvalidInput as error:
            raise ConfigError(f"FLASHML_ATTEMPT_ID or FLASHML_JOB_ID is wrong: {error}") from error
        return cls(
            ckpt_dir=Path(env.get("FLASHML_CKPT_DIR") or DEFAULT_CKPT_DIR),
            output_dir=Path(env.get("FLASHML_OUTPUT_DIR") or "."),
            claim=claim,
            keep=_integer(env, "FLASHML_CKPT_KEEP", 1) or DEFAULT_KEEP,
            step_file=Path(step_file) if step_file else None,
            suspect_step=_integer(env, "FLASHML_SUSPECT_STEP", 0),
            allow_nan=env.get("FLASHML_ALLOW_NAN", "0") not in {"", "0"},
            mtbf_s=_integer(env, "FLASHML_MTBF_S", 1) or DEFAULT_MTBF_S,
        )


class Attempt:
    """One try at a task, as its own process sees it; not for use from several threads."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.notice = threading.Event()
        self.resumed_from: int | None = None
        self.checkpoint_step: int | None = None
        self._step: int | None = None
        self._chain: Chain | None = None
        self._metrics: dict[str, JsonValue] = {}
        self._saver = Saver()
        self._buffers = HostBuffers()
        self._teller = Teller()
        self._ends_well = False

    @classmethod
    def from_env(cls) -> "Attempt":
        """Build the attempt that the environment of this process describes."""
        return cls(Settings.from_env(os.environ))

    @property
    def chain(self) -> Chain:
        """This attempt's hold on the checkpoint tree, taken at first use."""
        if self._chain is None:
            settings = self.settings
            self._chain = Chain.begin(
                settings.ckpt_dir,
                settings.claim,
                keep=settings.keep,
                suspect_step=settings.suspect_step,
            )
        return self._chain

    @property
    def is_saving(self) -> bool:
        """Whether a save is going on behind this process."""
        return self._saver.busy

    def cadence(self, now_s: float) -> Cadence:
        """Return what decides how often to save, with the failures of this job so far."""
        elapsed_s, failures = self.chain.history()
        prior_s = self.settings.mtbf_s
        return Cadence(now_s, prior_s=prior_s, elapsed_s=elapsed_s, failures=failures)

    @property
    def rejections(self) -> list[Rejection]:
        """Why newer checkpoints than the one resumed from were passed over."""
        return self.chain.rejections

    def resume(self) -> Resume | None:
        """Return the newest verified checkpoint, or None for a start from nothing.

        Superseded where a newer attempt has begun: this process must stop.
        """
        found = self.find()
        if found:
            self._accept(found)
        return found

    def find(self) -> Resume | None:
        """As `resume`, for a caller that says with `accept` whether it could use what it got."""
        found = self.chain.resume()
        for rejection in self.chain.rejections:
            self.event("checkpoint_rejected", **_json(asdict(rejection)))
        return found

    def accept(self, found: Resume) -> None:
        """Note that `found` could be loaded (restore_verified), and that this attempt goes on."""
        self.chain.restored(found.manifest)
        self._accept(found)

    def _accept(self, found: Resume) -> None:
        self.resumed_from = found.step
        self.event("resumed", step=found.step, manifest_id=found.manifest.manifest_id)
        self.report(found.step)

    def set_aside(self, step: int, reason: str) -> None:
        """Note that the checkpoint of `step` verified but is of no use; `resume` then skips it."""
        self.chain.set_aside(step, reason)
        self.event("checkpoint_set_aside", step=step, reason=reason)

    def save(
        self,
        step: int,
        parts: Mapping[str, Buffer],
        metadata: Mapping[str, object] | None = None,
        framework: str = "none",
    ) -> Manifest:
        """Commit `parts` (plain names, each at most 64 MiB) durably as the checkpoint of `step`.

        Raises what went wrong with an earlier `save_async` as well.
        """
        began_s = time.monotonic()
        self.flush()
        snapshot = Snapshot(step, parts, framework=framework, metadata=metadata or {})
        self._step = check_step(step)
        manifest = self._commit(self.chain, lambda: snapshot, began_s, None)
        self._teller.say()
        return manifest

    def save_async(
        self,
        step: int,
        parts: Mapping[str, Buffer],
        metadata: Mapping[str, object] | None = None,
        framework: str = "none",
    ) -> float:
        """As `save`, but pay only for a copy of `parts`; return the seconds that this took.

        One save is in flight at most: a call that finds one waits for it. What goes wrong later is
        raised by the next call that saves, by `flush`, or at the end of the process, which then
        ends with a nonzero code.
        """
        began_s = time.monotonic()
        self.flush()
        snapshot = Snapshot(step, parts, framework=framework, metadata=metadata or {})
        metadata = check(replace(snapshot, step=check_step(step)))
        snapshot = replace(snapshot, parts=self._buffers.copy(parts), metadata=metadata)
        return self.hand_over(step, lambda: snapshot, began_s)

    def hand_over(self, step: int, build: Callable[[], Snapshot], began_s: float) -> float:
        """Commit in the background what `build`, called there, returns; return the stall in s.

        `began_s` (time.monotonic) is when the caller began to prepare it, with nothing in flight.
        """
        chain = self.chain
        self.report(step)
        stall_s = time.monotonic() - began_s
        nice = 0 if self.notice.is_set() else NICE
        self._start(lambda: self._commit(chain, build, began_s, stall_s), nice)
        return stall_s

    def behind(self, work: Callable[[], object]) -> None:
        """Do `work` in the background, as a save that nobody has to wait for."""
        self._start(work, NICE)

    def _start(self, work: Callable[[], object], nice: int) -> None:
        """Do `work` in the background; the process does not end before it is over."""
        if not self._ends_well:
            self._ends_well = True
            at_end(self.flush)
        self._saver.start(work, nice=nice)

    def flush(self) -> float:
        """Wait until all that was saved is durable, or raise why not; return the wait in s."""
        try:
            return self._saver.wait()
        finally:
            self._teller.say()

    def surface(self) -> None:
        """Raise what went wrong in a save that is over, and print what became durable."""
        self._teller.say()
        self._saver.surface()

    def _commit(
        self, chain: Chain, build: Callable[[], Snapshot], began_s: float, stall_s: float | None
    ) -> Manifest:
        """Commit, and tell the worker; stdout is left to the thread of the caller."""
        try:
            manifest = chain.save(build())
        except NotFinite as error:
            self._give_up(chain, str(error))
            raise
        duration_s = time.monotonic() - began_s
        self.checkpoint_step = manifest.step
        self._write_step_file()
        self._note(
            "checkpoint_committed",
            step=manifest.step,
            manifest_id=manifest.manifest_id,
            size_bytes=sum(part.size_bytes for part in manifest.parts),
            duration_s=duration_s,
            stall_s=duration_s if stall_s is None else stall_s,
        )
        return manifest

    def _give_up(self, chain: Chain, reason: str) -> None:
        """Set aside what this attempt went on from, unless it has saved since."""
        if self.resumed_from is not None and self.checkpoint_step is None:
            chain.set_aside(self.resumed_from, reason)
            self._note("checkpoint_set_aside", step=self.resumed_from, reason=reason)

    def report(self, step: int) -> None:
        """Tell the worker how far this attempt is; what cannot be written is no error."""
        self._step = int(step)
        self._write_step_file()
        self._teller.say()

    def _write_step_file(self) -> None:
        state = {
            "step": self._step,
            "resumed_from": self.resumed_from,
            "checkpoint_step": self.checkpoint_step,
        }
        self._teller.steps(self.settings.step_file, state)

    def log(self, metrics: Mapping[str, object]) -> None:
        """Merge `metrics` into metrics.json; never raises, a value that JSON cannot hold is left
        out with an event that names it.
        """
        try:
            self._merge(metrics)
            replace_file(self.settings.output_dir / METRICS_NAME, strict_dumps(self._metrics))
        except Exception as error:  # noqa: BLE001 (metrics must never end a training run)
            self.event("metrics_not_written", reason=f"{type(error).__name__}: {error}")

    def _merge(self, metrics: Mapping[str, object]) -> None:
        for key, value in dict(metrics).items():
            try:
                self._metrics.update(_json({str(key): value}))
            except FlashError as error:
                self.event("metric_left_out", key=str(key), reason=str(error))

    def install_notice(self) -> None:
        """Let SIGTERM set `notice`, so that the loop can save and exit with 143.

        A handler that was there is called afterwards. Outside of the main thread nothing is
        installed: Python allows handlers only there.
        """
        if threading.current_thread() is threading.main_thread():
            previous = signal.getsignal(signal.SIGTERM)

            def on_notice(number: int, frame: FrameType | None) -> None:
                self.notice.set()
                if callable(previous):
                    previous(number, frame)

            signal.signal(signal.SIGTERM, on_notice)

    def event(self, name: str, **fields: JsonValue) -> None:
        """Print one structured line, and append it to events.jsonl for the worker."""
        self._note(name, **fields)
        self._teller.say()

    def _note(self, name: str, **fields: JsonValue) -> None:
        self._teller.note(self.settings.step_file, name, fields)


def _integer(env: Mapping[str, str], name: str, least: int) -> int | None:
    text = env.get(name)
    if not text:
        return None
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if number < least:
        raise ConfigError(f"{name} must be an integer of at least {least}, not {text!r}")
    return number


def _json(fields: Mapping[str, object]) -> dict[str, JsonValue]:
    return {key: plain(value, key) for key, value in fields.items()}
