"""Prove that a command resumes exactly: run it undisturbed, then again with SIGKILLs at random
moments, and compare the final checkpoint bit for bit, and the final metrics. Metrics that tell of
time, machine or attempt (a word of the name says so: seconds, resumed, executed ...) may differ.
Exit code 0: proven. 1: it differs, or nothing could be proven; the reason is printed."""

import shutil
import signal
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from time import monotonic

from flashruntime.checkpoint.difference import Comparison, compare_parts
from flashruntime.checkpoint.store import Resume
from flashruntime.cli.command import pairs, split
from flashruntime.cli.common import plain
from flashruntime.sdk.divergence import Origin
from flashruntime.sdk.exactness import Examination, Request, Verdict
from flashruntime.sdk.workload import CommandWorkload, Resources

MAX_DIFFERENCES = 20
MAX_FIRST = 5


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    add = parser.add_argument
    add("command", nargs="+", metavar="CMD", help="the command, quoted, or its words after `--`")
    add("--kills", type=int, default=20, metavar="N", help="kills that must land (default: 20)")
    add("--seed", type=int, default=0, metavar="S", help="of the kills' moments (default: 0)")
    add("--source", type=Path, default=Path(), metavar="DIR", help="the code (default: .)")
    add("--env", action="append", default=[], metavar="K=V", help="variable of the script")
    add("--nproc", type=int, default=1, metavar="N", help="ranks, under torchrun")
    add("--ignore", action="append", default=[], metavar="NAME", help="metric that may differ")
    add("--output-dir", type=Path, metavar="DIR", help="keep the files of all runs here")


def run(args: Namespace, _: ArgumentParser) -> int:
    """Run and compare; return 0 if exactness is proven, else 1."""
    workload = CommandWorkload(
        split(args.command),
        source=args.source,
        env=pairs(args.env, "--env"),
        resources=Resources(nproc_per_node=args.nproc),
    )
    root = args.output_dir or Path(tempfile.mkdtemp(prefix="flashruntime-verify-"))
    keep = args.output_dir is not None
    try:
        request = Request(
            workload, args.kills, args.seed, root, frozenset(args.ignore), {"torch": _compare_torch}
        )
        signal.signal(signal.SIGTERM, _interrupt)
        began_s = monotonic()
        verdict = Examination(request, _teller(began_s)).run()
        keep = keep or not verdict.proven
        _print(verdict, monotonic() - began_s)
        if keep:
            print(f"files: {root}")
    finally:
        if not keep:
            shutil.rmtree(root, ignore_errors=True)
    return 0 if verdict.proven else 1


def _compare_torch(first: Resume, second: Resume) -> Comparison:
    """Compare by tensor and stream where torch is installed, else part by part."""
    if find_spec("torch") is None:
        found = compare_parts(first, second)
        note = "torch is not installed here, so that tensors cannot be told apart"
        return Comparison(found.differences, [*found.facts, note])
    from flashruntime.torch.difference import compare_states  # noqa: PLC0415 (needs torch)

    return compare_states(first, second)


def _print(verdict: Verdict, took_s: float) -> None:
    print(f"{'proven' if verdict.proven else 'NOT PROVEN'}: {plain(verdict.reason)}")
    if verdict.origin:
        _print_origin(verdict.origin)
    for difference in verdict.differences[:MAX_DIFFERENCES]:
        print(f"  differs: {plain(difference.what)}: {plain(difference.detail)}")
    if len(verdict.differences) > MAX_DIFFERENCES:
        print(f"  ... and {len(verdict.differences) - MAX_DIFFERENCES} more differences")
    for fact in verdict.facts:
        print(f"  {plain(fact)}")
    print(f"  kills: {_kills(verdict)}; {took_s:.1f} s in all")
    if verdict.log:
        print(verdict.log)


def _print_origin(origin: Origin) -> None:
    before = "" if origin.equal_step is None else f"; that of step {origin.equal_step} is equal"
    print(
        f"  first in the checkpoint of step {origin.step}{before} "
        f"(one kill at step {origin.killed_at}, resumed from {origin.resumed_from or 'the start'})"
    )
    for difference in origin.differences[:MAX_FIRST]:
        print(f"    {plain(difference.what)}: {plain(difference.detail)}")
    if len(origin.differences) > MAX_FIRST:
        print(f"    ... and {len(origin.differences) - MAX_FIRST} more")


def _kills(verdict: Verdict) -> str:
    came = [kill.resumed_from for kill in verdict.kills]
    resumed = sum(1 for step in came if step)
    counted = {
        "went on from a checkpoint": resumed,
        "began anew": came.count(0),
        "went on from an unknown step": came.count(None),
    }
    after = ", ".join(f"{count} {what}" for what, count in counted.items() if count)
    return f"{len(came)} landed ({after or 'none'}), {verdict.missed} missed"


def _teller(began_s: float) -> Callable[[str], None]:
    def tell(line: str) -> None:
        print(f"{monotonic() - began_s:7.1f}s  {plain(line)}", file=sys.stderr, flush=True)

    return tell


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt
