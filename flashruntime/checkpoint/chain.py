"""One attempt's use of a checkpoint tree: begin, resume, save, set aside."""

import logging
from dataclasses import replace
from pathlib import Path

from flashruntime.checkpoint import commit, displace, files, lineage, notes, retention
from flashruntime.checkpoint.commit import Snapshot
from flashruntime.checkpoint.lineage import Admission, Claim, Entry, Hold
from flashruntime.checkpoint.manifest import check_step
from flashruntime.checkpoint.store import (
    REJECTED,
    RESTORED,
    Rejection,
    Resume,
    load_manifest,
    newest,
)
from flashruntime.clock import Clock, SystemClock
from flashruntime.errors import CheckpointError, FlashError
from flashruntime.protocol.checkpoints import Manifest, TakenOver

DEFAULT_KEEP = 3
log = logging.getLogger(__name__)


class Chain:
    """An attempt's hold on a tree, from `begin` until a later attempt begins."""

    def __init__(self, hold: Hold, entries: list[Entry], keep: int | None, clock: Clock) -> None:
        self._hold = hold
        self._admits = Admission(entries)
        self._entries = entries
        self._keep = keep
        self._clock = clock
        self._found: Resume | None = None
        self._searched = False
        self.rejections: list[Rejection] = []

    @classmethod
    def begin(
        cls,
        root: Path,
        claim: Claim,
        *,
        keep: int | None = DEFAULT_KEEP,
        clock: Clock | None = None,
        suspect_step: int | None = None,
    ) -> "Chain":
        """Take the tree over: verify its newest checkpoint and record durably who goes on from it.

        The checkpoint of `suspect_step` is set aside first. Superseded where a newer attempt holds
        the tree. The same attempt may begin again.
        """
        keep = retention.check_keep(keep)
        clock = clock or SystemClock()
        try:
            return cls._begin(root, claim, keep, clock, suspect_step)
        except FlashError:
            raise
        except OSError as error:
            raise CheckpointError(
                f"the checkpoint tree {root} cannot be used: {files.words_of(error)}; "
                "it must be a directory that this process may write"
            ) from error

    @classmethod
    def _begin(
        cls, root: Path, claim: Claim, keep: int | None, clock: Clock, suspect_step: int | None
    ) -> "Chain":
        files.make_directory(root / lineage.LINEAGE)
        while True:
            known = lineage.numbers(root)
            entries = lineage.read(root, known)
            admits = Admission(entries)
            own = entries[-1] if entries and entries[-1].n == known[-1] else None
            again = own is not None and _same(own, claim)
            if not again:
                lineage.check_may_follow(claim, entries)
                if suspect_step is not None:
                    _set_aside_suspect(root, claim, suspect_step, admits)
            displace.put_back_pending(root, admits)
            counted = lineage.without_vain(root, entries)
            found, rejections = newest(root, Admission(counted))
            if own is not None and again:
                entry, counted = own, entries
                break
            entry = _entry(claim, known, entries, found, clock)
            if lineage.publish(root, entry):
                counted = [*counted, entry]
                break
        commit.clean_staging(root, {each.attempt_id for each in [*entries, entry]})
        displace.sweep_doomed(root)
        chain = cls(Hold(root, entry), counted, keep, clock)
        chain._found, chain.rejections, chain._searched = found, rejections, True
        return chain

    @property
    def entry(self) -> Entry:
        """This attempt's entry in the lineage."""
        return self._hold.entry

    def history(self) -> tuple[float, int]:
        """Return for how many seconds this job had the tree before, and how often it began again.

        The clocks of its hosts only feed an estimate: a negative time is none.
        """
        own = [entry for entry in self._entries if entry.job_id == self.entry.job_id]
        elapsed_s = (own[-1].created - own[0].created).total_seconds()
        return max(0.0, elapsed_s), len(own) - 1

    def resume(self) -> Resume | None:
        """Return the newest checkpoint of the chain, verified; its bytes are handed out once.

        `rejections` tells what was passed over, and why.
        """
        if not self._searched:
            self._found, self.rejections = newest(self._hold.root, self._admits)
        found, self._found, self._searched = self._found, None, False
        return found

    def save(self, snapshot: Snapshot) -> Manifest:
        """Commit `snapshot`, then remove what retention no longer keeps."""
        snapshot = replace(snapshot, step=check_step(snapshot.step))
        self._found, self._searched = None, False
        manifest = commit.commit(self._hold, self._admits, snapshot, self._clock)
        if self._keep is not None:
            self._retain(snapshot.step, self._keep)
        return manifest

    def _retain(self, step: int, keep: int) -> None:
        """Retention that fails costs space, not the training that it serves."""
        try:
            retention.retain(self._hold, self._admits, step, keep)
        except OSError as error:
            log.warning("old checkpoints of %s stay: %s", self._hold.root, error)

    def set_aside(self, step: int, reason: str) -> None:
        """Note beside the checkpoint of `step` that it must not be used; its manifest stays."""
        manifest = load_manifest(self._hold.root, check_step(step))
        if not isinstance(manifest, Rejection):
            self._hold.check()
            notes.write(self._hold.root, manifest, REJECTED, self._hold.entry.attempt_id, reason)

    def restored(self, manifest: Manifest) -> None:
        """Note beside a checkpoint that a run could load it; a note that fails is no error."""
        try:
            notes.write(self._hold.root, manifest, RESTORED, self._hold.entry.attempt_id, "loaded")
        except OSError as error:
            log.warning("step %s stays hash_verified: %s", manifest.step, error)


def _set_aside_suspect(root: Path, claim: Claim, step: int, admits: Admission) -> None:
    """Set aside what attempts went on from in vain; the claim was found to be the newest."""
    try:
        manifest = load_manifest(root, step)
    except FileNotFoundError:
        return
    if isinstance(manifest, Manifest) and admits(manifest):
        reason = "attempts that went on from it ended the same way"
        notes.write(root, manifest, REJECTED, claim.attempt_id, reason)


def _same(head: Entry, claim: Claim) -> bool:
    return (head.attempt_id, head.job_id) == (claim.attempt_id, claim.job_id)


def _entry(
    claim: Claim, known: list[int], entries: list[Entry], found: Resume | None, clock: Clock
) -> Entry:
    taken = TakenOver(step=found.step, manifest_id=found.manifest.manifest_id) if found else None
    follows = entries[-1].epoch + 1 if entries else 0
    return Entry(
        n=max(known, default=0) + 1,
        attempt_id=claim.attempt_id,
        job_id=claim.job_id,
        epoch=follows if claim.epoch is None else claim.epoch,
        takes_over=taken,
        created=clock.utc_now(),
    )
