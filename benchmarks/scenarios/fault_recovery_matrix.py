"""Five faults by `flash.submit(max_restarts=1)`: an import error; SystemExit in mid-run; SIGKILL
from outside between saves, and in a save; a bit flipped in the newest checkpoint between two
runs. Right is, as read from the run: the import error failed at once, typed as the
application's; every other went on from the newest checkpoint that the fault left valid, and
ended well. Manual interventions of bare torchrun are modelled; its crash is run.

Composed stack: the chaos experiment of that name kills containers; each fault is judged.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import flashruntime as flash
from benchmarks import composed, faults, host, stats
from benchmarks.comparators import bare
from benchmarks.faults import Trial, Victim
from benchmarks.scenario import PAYLOADS, Bench, Scenario, expect, series
from benchmarks.schema import BenchError, Better, Section, Target
from chaos.figures import cases
from chaos.workloads.matrix import EXIT, IMPORT, KILLED, ROTTEN, TORN
from flashruntime.protocol.failures import FailureClass

SEED = 17
TRIAL = Trial(steps=40, every=2, samples=400)
LARGE = Trial(steps=12, every=1, samples=400, ballast_mib=8)
MAX_RESTARTS = 1
CASES = 5
TRIES = 5
TORCHRUN = "torchrun, modelled"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one fault was answered, in words for the notes."""

    right: bool
    told: str


def run(bench: Bench) -> None:
    """Measure how many of five faults are answered as each should be."""
    if bench.target is Target.COMPOSE:
        on_containers(bench)
        return
    here = Matrix(bench)
    for number in range(bench.count(1)):
        here.round(SEED + number)
        bench.say(f"matrix {number + 1}/{bench.count(1)}")
    torchrun, told = here.torchrun()
    correct = [float(sum(each.right for each in outcomes)) for outcomes in here.rounds]
    by_hand = [CASES - each for each in correct]
    bench.report(
        correct,
        better=Better.HIGHER,
        figures=[
            series("manual interventions", "faults", by_hand),
            series("manual interventions, torchrun, modelled", "faults", [float(CASES)]),
            *([series("recovery by hand, torchrun, modelled", "s", torchrun)] if torchrun else []),
            series("recovery after SystemExit, whole run", "s", here.walls),
        ],
        notes=[
            *here.told(),
            "manual interventions are the faults that were not answered as they should be; "
            f"torchrun is modelled at {CASES}: it types no failure and never resumes by itself",
            told,
        ],
    )


class Matrix:
    """The five faults, and what became of them in each round."""

    def __init__(self, bench: Bench) -> None:
        self.rounds: list[list[Outcome]] = []
        self.walls: list[float] = []
        self._bench = bench
        self._source = TRIAL.source(bench)

    def round(self, seed: int) -> None:
        """Inject every fault once."""
        faults_: tuple[Callable[[int], Outcome], ...] = (
            self._import_error,
            self._system_exit,
            self._killed,
            self._killed_in_save,
            self._corrupt,
        )
        self.rounds.append([inject(seed) for inject in faults_])

    def told(self) -> list[str]:
        """Return what was seen of each fault, in its latest round, and every wrong answer."""
        wrong = [
            f"round {number}: {each.told}"
            for number, outcomes in enumerate(self.rounds, start=1)
            for each in outcomes
            if not each.right
        ]
        return [*(each.told for each in self.rounds[-1]), *faults.findings(wrong)]

    def torchrun(self) -> tuple[list[float], str]:
        """Run bare torchrun into the crash of (b) and to its end without one; model the rest."""
        if host.installed("torch") is None:
            return [], "torchrun: not measured: torch is not installed here"
        crashed, whole = [], []
        for _ in range(len(self.rounds)):
            crashed.append(self._torchrun_s("exit", crashes=True))
            whole.append(self._torchrun_s("none", crashes=False))
        modelled = [a + b for a, b in zip(crashed, whole, strict=True)]
        return modelled, (
            "torchrun (b), run for real, one process: it exits with an error and does not try "
            "again; recovery modelled as the crashed run and a whole new one, "
            f"{stats.median(crashed):.3g} s + {stats.median(whole):.3g} s"
        )

    def _torchrun_s(self, crash: str, *, crashes: bool) -> float:
        place = self._bench.folder("torchrun")
        script = str(self._source / faults.TRIAL.name)
        python, _, *words = TRIAL.argv(crash=crash, at=self._crash_step(SEED))
        argv = [python, str(PAYLOADS / "torchrun.py"), "--nproc-per-node=1", script, *words]
        begun_s, failed = time.monotonic(), False
        try:
            bare.run(argv, place)
        except BenchError:
            failed = True
        took_s = time.monotonic() - begun_s
        expect(failed is crashes, f"torchrun of a trial with crash={crash} ended otherwise")
        return took_s

    @staticmethod
    def _crash_step(seed: int) -> int:
        return 10 + 2 * (seed % 10) + 1

    def _submit(self, argv: list[str], output: Path, pids: Path | None = None) -> flash.Run:
        env = {} if pids is None else faults.pids(pids)
        workload = flash.CommandWorkload(argv, source=self._source, env=env)
        wait = pids is None
        return flash.submit(workload, output, wait=wait, max_restarts=MAX_RESTARTS, watch=False)

    def _import_error(self, _seed: int) -> Outcome:
        run = self._submit(TRIAL.argv(crash="import"), self._bench.folder())
        found = [str(each.failure_class) for each in run.attempts]
        right = run.state is flash.RunState.FAILED and found == [FailureClass.APPLICATION_ERROR]
        told = f"{run.state}, {len(found)} attempt(s), typed {', '.join(found)}"
        return Outcome(right, f"(a) import error: {_sign(right)}, {told}")

    def _system_exit(self, seed: int) -> Outcome:
        at = self._crash_step(seed)
        begun_s = time.monotonic()
        run = self._submit(TRIAL.argv(crash="exit", at=at), self._bench.folder())
        self.walls.append(time.monotonic() - begun_s)
        return _resumed("(b) SystemExit in mid-run", run, at - at % TRIAL.every)

    def _killed(self, seed: int) -> Outcome:
        pids = self._bench.folder("pids")
        run = self._submit(TRIAL.told(), self._bench.folder(), pids)
        step = Victim.first(pids).kill_after(1 + seed % 4)
        run.wait()
        name = "(c) SIGKILL in mid-run"
        return _resumed(name, run, step, fired=step is not None, later=TRIAL.every)

    def _killed_in_save(self, seed: int) -> Outcome:
        """Kill in a save; a kill that the window did not see is no answer to judge: once more."""
        tries = faults.strikes(seed, TRIES, (2, 6), 3)
        for number, strike in enumerate(tries, start=1):
            pids = self._bench.folder("pids")
            run = self._submit(LARGE.told(), self._bench.folder(), pids)
            hit = Victim.first(pids).kill_in_save(strike)
            run.wait()
            if hit is not None and hit.torn:
                name = f"(d) SIGKILL in a save, try {number}"
                return _resumed(name, run, hit.step - 1)
        return Outcome(right=False, told=f"(d) no kill of {TRIES} landed in a save")

    def _corrupt(self, seed: int) -> Outcome:
        output, at, pids = self._bench.folder(), self._crash_step(seed), self._bench.folder("pids")
        argv = TRIAL.told(crash="exit", at=at)
        workload = flash.CommandWorkload(argv, source=self._source, env=faults.pids(pids))
        first = flash.submit(workload, output, wait=False, max_restarts=0, watch=False)
        ckpt_dir = Victim.first(pids).ckpt_dir
        first.wait()
        step = faults.corrupt_newest(ckpt_dir, seed)
        second = self._submit(TRIAL.argv(), output)
        name = f"(e) newest part corrupted at step {step}"
        return _resumed(name, second, step - TRIAL.every, attempts=1)


def _resumed(
    name: str,
    run: flash.Run,
    step: int | None,
    *,
    fired: bool = True,
    attempts: int = 2,
    later: int = 0,
) -> Outcome:
    """Judge a run that must have gone on from `step`, or from the save `later` than it."""
    found = run.trials[0].get("resumed_from")
    made = len(run.attempts)
    near = isinstance(found, int) and step is not None and found in {step, step + later}
    right = fired and run.state is flash.RunState.SUCCEEDED and near and made == attempts
    missed = "" if fired else ", the fault did not land"
    told = f"{run.state}, went on from {found} (newest valid: {step}), {made} attempt(s){missed}"
    return Outcome(right, f"{name}: {_sign(right)}, {told}")


def _sign(right: bool) -> str:
    return "right" if right else "WRONG"


def on_containers(bench: Bench) -> None:
    """Count what the chaos experiment of the same name shows, one run a repeat."""
    readings = composed.runs(bench, "fault_recovery_matrix", bench.count(1))
    lanes = (IMPORT, EXIT, KILLED, TORN, ROTTEN)
    correct, told = [], []
    for reading in readings:
        judged = {case.lane: case for case in cases(reading.history)}
        correct.append(float(sum(lane in judged and not judged[lane].wrong for lane in lanes)))
        told = [
            f"{lane}: {'; '.join(judged[lane].wrong or judged[lane].told)}"
            for lane in lanes
            if lane in judged
        ]
    bench.report(
        correct,
        better=Better.HIGHER,
        figures=[
            series("manual interventions", "faults", [CASES - each for each in correct]),
            series("detection", "s", composed.together(readings, "mttd_s")),
            series("recovery", "s", composed.together(readings, "mttr_s")),
        ],
        notes=[*told, *composed.notes(readings)],
    )


SCENARIO = Scenario(
    name="fault_recovery_matrix",
    section=Section.RESILIENCE,
    hypothesis=(
        "Each of five faults gets its own right answer without a human: a bug fails at once, "
        "everything else goes on from the newest checkpoint that is still valid."
    ),
    method=__doc__,
    unit="correct of 5",
    better=Better.HIGHER,
    budget_s=240,
    targets=composed.BOTH,
    run=run,
)
