"""Proves that a script resumes exactly: one undisturbed run, runs with kills, one comparison."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

from flashruntime.checkpoint.difference import Difference
from flashruntime.checkpoint.store import steps
from flashruntime.errors import InvalidInput
from flashruntime.protocol.jobs import Checkpoints, JobState
from flashruntime.sdk.divergence import Compare, Origin, Trees, size_bytes
from flashruntime.sdk.kills import KillingLauncher, Moment, Pace, Watched, choose_moments
from flashruntime.sdk.metrics import compare_metrics, final_metrics
from flashruntime.sdk.run import Run
from flashruntime.sdk.submit import submit_through
from flashruntime.sdk.workload import CommandWorkload

MAX_KILLS = 1_000
MAX_VAIN_RUNS = 3
TELL_EVERY_S = 10.0
LEAST_LIMIT_S = 60.0
LIMIT_FACTOR = 5.0
LOG_LINES = 20
KEEP_BYTES = 1 << 30
MAX_KEPT = 1_000

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be proven; `root` takes the files, `compare` has a comparison by framework."""

    workload: CommandWorkload
    kills: int
    seed: int
    root: Path
    ignore: frozenset[str] = frozenset()
    compare: Mapping[str, Compare] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 1 <= self.kills <= MAX_KILLS:
            raise InvalidInput(f"kills={self.kills} must be a whole number from 1 to {MAX_KILLS}")
        if len(self.workload.tasks) > 1:
            raise InvalidInput("a fan-out cannot be verified; give the command of one task")
        if self.root.is_dir() and any(self.root.iterdir()):
            raise InvalidInput(f"{self.root} is not empty; name a directory that is, or a new one")


@dataclass(frozen=True, slots=True)
class Kill:
    """A kill that landed: the step that was shown, and the one from which the next attempt went on.

    One after which no step was left to do shows nothing and does not count.
    `resumed_from` 0 means from the start, None that no later attempt tells.
    """

    step: int | None
    resumed_from: int | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether exactness is proven, and why; `facts` say what was compared, and what was not.

    `origin` tells where the runs parted, as far as a single kill shows it.
    """

    proven: bool
    reason: str
    differences: list[Difference] = field(default_factory=list)
    facts: list[str] = field(default_factory=list)
    kills: list[Kill] = field(default_factory=list)
    missed: int = 0
    log: str = ""
    origin: Origin | None = None


@dataclass(frozen=True, slots=True)
class _Compared:
    differences: list[Difference]
    facts: list[str]
    common_step: int | None
    hint: str = ""


class Examination:
    """One proof; `tell` is given a line whenever something happens, from several threads."""

    def __init__(self, request: Request, tell: Tell) -> None:
        self._request = request
        self._tell = tell
        self._kills: list[Kill] = []
        self._missed = 0
        self._chance = Random(request.seed)
        self._control: Run | None = None
        self._by_chance: set[str] = set()

    def run(self) -> Verdict:
        """Do all of it. CheckpointError where a checkpoint cannot be read."""
        whole, pace = self._undisturbed("undisturbed")
        if whole.state is not JobState.SUCCEEDED:
            return self._failed("the undisturbed run failed", whole)
        told = "no step shown" if pace.steps is None else f"{pace.steps} steps"
        self._tell(f"undisturbed run: {told} in {pace.duration_s:.1f} s")
        vain, number, compared = 0, 0, _Compared([], [], None)
        while len(self._kills) < self._request.kills and vain < MAX_VAIN_RUNS:
            number += 1
            before = len(self._kills)
            run = self._disturbed(f"killed-{number}", pace)
            vain = 0 if len(self._kills) > before else vain + 1
            if run.state is not JobState.SUCCEEDED:
                return self._failed("the run with kills failed, the undisturbed one did not", run)
            compared = self._compared(whole, run)
            if compared.differences:
                compared = self._without_chance(whole, compared)
            if compared.differences:
                return self._differs(compared, pace)
        return self._equal(compared)

    def _undisturbed(self, name: str, keep: int | None = None) -> tuple[Run, Pace]:
        launcher = KillingLauncher([], lambda _: None)
        run = self._await(name, launcher, 0, None, keep)
        pace = launcher.launched[-1].pace if launcher.launched else Pace(0.0)
        return run, pace

    def _disturbed(self, name: str, pace: Pace) -> Run:
        """Run with the kills that are still to land; add those that did."""
        wanted = self._request.kills
        moments = choose_moments(wanted - len(self._kills), pace, self._chance)
        sent = len(self._kills)

        def on_kill(watched: Watched) -> None:
            nonlocal sent
            sent += 1
            self._tell(f"kill {sent} of {wanted}: {_where(watched)}")

        launcher = KillingLauncher(moments, on_kill)
        run = self._await(name, launcher, 1, _limit_s(len(moments), pace))
        landed = [_kill(each, launcher.launched) for each in launcher.launched if each.landed]
        counted = [
            kill for kill in landed if not kill.resumed_from or kill.resumed_from != pace.steps
        ]
        self._kills += counted
        missed = len(moments) - len(counted)
        self._missed += missed
        if missed:
            self._tell(f"{missed} kills missed: the script had done its last step before")
        return run

    def _await(
        self,
        name: str,
        launcher: KillingLauncher,
        max_restarts: int,
        limit_s: float | None,
        keep: int | None = None,
    ) -> Run:
        workload, place = self._request.workload, self._request.root / name
        if keep:
            workload = workload.model_copy(update={"checkpoint": Checkpoints(keep=keep)})
        self._tell(f"{name}: started")
        run = submit_through(
            launcher, workload, place, max_restarts=max_restarts, timeout_s=limit_s
        )
        try:
            while not run.wait(TELL_EVERY_S).terminal:
                step = launcher.launched[-1].progress.step if launcher.launched else None
                self._tell(f"{name}: {'running' if step is None else f'at step {step}'}")
        except BaseException:
            run.cancel()
            raise
        return run

    def _compared(self, whole: Run, run: Run) -> _Compared:
        metrics = compare_metrics(final_metrics(whole), final_metrics(run), self._request.ignore)
        differences, facts = [], [_metrics_fact(metrics.compared, metrics.ignored)]
        final, step = whole.attempts[-1].step, run.attempts[-1].step
        if final != step:
            differences.append(Difference("last step", f"{step} instead of {final}"))
        trees = Trees(_tree(whole), _tree(run), self._request.compare)
        common, hint = next(iter(trees.common()), None), ""
        if common is not None:
            found = trees.at(common)
            differences, hint = differences + found.differences, found.hint
            facts.insert(0, f"compared: checkpoint of step {common}: {'; '.join(found.facts)}")
            if final is not None and common < final:
                facts.append(
                    "note: the two runs share no checkpoint of the last step: of the steps "
                    f"{common + 1} to {final} only metrics tell; checkpoint after the last one"
                )
        return _Compared(differences + metrics.differences, facts, common, hint)

    def _without_chance(self, whole: Run, compared: _Compared) -> _Compared:
        """Leave out streams in which undisturbed runs differ as well: nothing has seeded them."""
        if self._control is None:
            self._tell("it differs; running undisturbed once more, to see what differs by itself")
            size = size_bytes(_tree(whole))
            keep = max(1, min(MAX_KEPT, KEEP_BYTES // size)) if size else None
            self._control, _ = self._undisturbed("undisturbed-2", keep)
            found = self._compared(whole, self._control).differences
            self._by_chance = {each.what for each in found}
        chance = [each for each in compared.differences if each.what in self._by_chance]
        unseeded = [each.what for each in chance if each.is_stream]
        left = [each for each in compared.differences if each.what not in unseeded]
        facts = list(compared.facts)
        if unseeded:
            note = "note: not compared, for two undisturbed runs differ there (seed it)"
            facts.append(f"{note}: {', '.join(unseeded)}")
        return replace(compared, differences=left, facts=facts)

    def _differs(self, compared: _Compared, pace: Pace) -> Verdict:
        differences, facts = compared.differences, list(compared.facts)
        if any(difference.what in self._by_chance for difference in differences):
            reason = (
                "two undisturbed runs differ too, so that nothing can be said of the resumed one; "
                "seed the script's random streams and use deterministic operations first"
            )
            return self._verdict(reason, differences=differences, facts=facts)
        if compared.hint and not any(each.is_stream for each in differences):
            facts.append(f"hint: {compared.hint}")
        reason = "the resumed run differs from the undisturbed one"
        verdict = self._verdict(reason, differences=differences, facts=facts)
        return replace(verdict, origin=self._origin(pace))

    def _origin(self, pace: Pace) -> Origin | None:
        """Kill one more run, once, and look for the first checkpoint that differs."""
        assert self._control is not None  # noqa: S101 (it differs, so that there was one)
        kept = steps(_tree(self._control))
        if not kept or pace.steps is None:
            return None
        self._tell("killing once more, to see where it begins to differ")
        moment = Moment(kept[len(kept) // 2], pace.step_s / 2)
        launcher = KillingLauncher([moment], lambda _: None)
        limit_s = _limit_s(1, pace)
        run = self._await("killed-once", launcher, 1, limit_s, max(len(kept), 1))
        trees = Trees(_tree(self._control), _tree(run), self._request.compare)
        found = trees.first_difference(self._by_chance)
        killed = next((each for each in launcher.launched if each.landed), None)
        if found is None or killed is None:
            return None
        kill = _kill(killed, launcher.launched)
        return Origin(found[0], found[1], kill.step, kill.resumed_from, found[2])

    def _equal(self, compared: _Compared) -> Verdict:
        wanted, landed = self._request.kills, len(self._kills)
        if landed < wanted:
            reason = (
                f"only {landed} of {wanted} kills landed before the script had done its last step"
            )
        elif compared.common_step is None:
            reason = (
                "nothing to compare: the two runs left no checkpoint of the same step "
                "(flashruntime.torch.checkpoint or flashruntime.attempt.Attempt.save, best after "
                "the last step); only metrics, if any, could be compared"
            )
        elif not any(kill.resumed_from for kill in self._kills):
            reason = (
                "no attempt resumed from a checkpoint, so that nothing was shown of resuming; "
                "checkpoint more often, or give more kills"
            )
        else:
            reason = f"{landed} of {wanted} kills landed, and nothing differs"
            return self._verdict(reason, proven=True, facts=compared.facts)
        return self._verdict(reason, facts=compared.facts)

    def _failed(self, what: str, run: Run) -> Verdict:
        return self._verdict(f"{what}: {run.reason}", log=run.logs(LOG_LINES))

    def _verdict(
        self,
        reason: str,
        *,
        proven: bool = False,
        differences: list[Difference] | None = None,
        facts: list[str] | None = None,
        log: str = "",
    ) -> Verdict:
        return Verdict(
            proven, reason, differences or [], facts or [], self._kills, self._missed, log
        )


def _tree(run: Run) -> Path:
    return run.output_dir / "local" / "ckpt"


def _limit_s(kills: int, pace: Pace) -> float:
    return LEAST_LIMIT_S + LIMIT_FACTOR * (kills + 1) * pace.duration_s


def _where(watched: Watched) -> str:
    progress, moment = watched.progress, watched.moment
    if progress.step is None:
        delay_s = moment.delay_s if isinstance(moment, Moment) else 0.0
        return f"{delay_s:.2f} s after its start, no step shown"
    came = progress.resumed_from
    return f"at step {progress.step}, resumed from {'the start' if came is None else came}"


def _kill(watched: Watched, launched: list[Watched]) -> Kill:
    """Look up from where the first later attempt went on that lived long enough to tell."""
    later = launched[launched.index(watched) + 1 :]
    told = (each.progress for each in later if each.progress.step is not None)
    progress = next(told, None)
    resumed_from = None if progress is None else progress.resumed_from or 0
    return Kill(watched.progress.step, resumed_from)


def _metrics_fact(compared: list[str], ignored: list[str]) -> str:
    if not compared and not ignored:
        return "note: no metrics.json"
    left_out = f"; not compared: {', '.join(ignored)}" if ignored else ""
    return f"compared: metrics: {', '.join(compared) or 'none'}{left_out}"
