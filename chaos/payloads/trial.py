"""One trial, written as a user would without a framework: fit a line, save, resume exactly.

`--crash` arms the first attempt (an import error every attempt): at `--crash-at` it ends itself.
`--ballast-mib` makes a checkpoint large; a resume proves each byte of it.
"""

import argparse
import hashlib
import importlib
import json
import os
import random
import signal
from pathlib import Path

from flashruntime.attempt import Attempt

EXIT_CODE = 3
KIB, MIB = 1 << 10, 1 << 20
DIMENSIONS = 4


class Line:
    """A linear model, its samples drawn from one seeded stream; all of it is in a checkpoint."""

    def __init__(self, seed: int) -> None:
        self.stream = random.Random(seed)
        self.weights = [0.0] * DIMENSIONS
        self.chain = hashlib.sha256(b"").hexdigest()
        self.seen = 0

    def step(self, samples: int) -> float:
        """Go through so many samples; return the loss of the last one."""
        loss, first = 0.0, self.stream.random()
        for _ in range(samples):
            x = [self.stream.random() for _ in range(DIMENSIONS)]
            wanted = sum(x) + self.stream.gauss(0.0, 0.1)
            error = sum(w * v for w, v in zip(self.weights, x, strict=True)) - wanted
            self.weights = [w - 0.01 * error * v for w, v in zip(self.weights, x, strict=True)]
            loss = error * error
        self.chain = hashlib.sha256(f"{self.chain} {first!r} {samples}".encode()).hexdigest()
        self.seen += samples
        return loss

    def dump(self) -> bytes:
        """Return everything as JSON."""
        version, state, gauss = self.stream.getstate()
        whole = [self.weights, self.chain, self.seen, [version, list(state), gauss]]
        return json.dumps(whole).encode()

    def load(self, data: bytes) -> None:
        """Take over what `dump` returned."""
        self.weights, self.chain, self.seen, (version, state, gauss) = json.loads(data)
        self.stream.setstate((version, tuple(state), gauss))

    def sha256(self) -> str:
        """Return one digest over the weights."""
        return hashlib.sha256(repr(self.weights).encode()).hexdigest()


def ballast(args: argparse.Namespace, step: int) -> dict[str, bytes]:
    """Return the bytes that make a checkpoint large, other ones at each step."""
    size = args.ballast_mib * MIB
    return {"ballast.bin": random.Random(f"{args.seed}/{step}").randbytes(size)} if size else {}


def resume(args: argparse.Namespace, attempt: Attempt, line: Line) -> int:
    """Take over the newest checkpoint; return its step, 0 where there is none."""
    found = attempt.resume()
    if found is None:
        return 0
    line.load(bytes(found.parts["line.json"]))
    for name, data in ballast(args, found.step).items():
        if bytes(found.parts[name]) != data:
            raise SystemExit(f"step {found.step}: {name} is not what was saved")
    return found.step


def write_outputs(args: argparse.Namespace, folder: Path) -> None:
    """Leave files of seeded bytes for the worker to hand in."""
    for number in range(args.outputs):
        data = random.Random(f"{args.seed}/output/{number}").randbytes(args.output_kib * KIB)
        (folder / f"output-{number}.bin").write_bytes(data)


def crash(args: argparse.Namespace, attempt: Attempt, step: int) -> None:
    """End this process as it was armed to."""
    attempt.event("crash", how=args.crash, step=step)
    if args.crash == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    raise SystemExit(EXIT_CODE)


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Fit a line.")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--every", type=int, default=5, help="checkpoint interval in steps")
    parser.add_argument("--samples", type=int, default=4000, help="samples a step")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--trial", type=int, default=0)
    parser.add_argument("--ballast-mib", type=int, default=0)
    parser.add_argument("--outputs", type=int, default=0, help="files to hand in")
    parser.add_argument("--output-kib", type=int, default=0)
    parser.add_argument("--crash", choices=["none", "import", "exit", "kill"], default="none")
    parser.add_argument("--crash-at", type=int, default=0)
    return parser.parse_args()


def main() -> None:
    """Fit, and write metrics.json."""
    args = parse()
    if args.crash == "import":
        importlib.import_module("a_module_that_nobody_installed")
    attempt, line = Attempt.from_env(), Line(args.seed * 1000 + args.trial)
    armed = args.crash != "none" and os.environ.get("FLASHML_RESTART_COUNT", "0") == "0"
    start = resume(args, attempt, line)
    loss = 0.0
    for step in range(start + 1, args.steps + 1):
        loss = line.step(args.samples)
        if step % args.every == 0:
            attempt.save(step, {"line.json": line.dump(), **ballast(args, step)})
        attempt.report(step)
        if armed and step >= args.crash_at:
            crash(args, attempt, step)
    write_outputs(args, attempt.settings.output_dir)
    attempt.log(
        {
            "loss": loss,
            "steps": args.steps,
            "weights_sha256": line.sha256(),
            "sample_chain": line.chain,
            "samples_seen": line.seen,
            "resumed_from": start or None,
            "executed_steps_this_attempt": args.steps - start,
        }
    )


if __name__ == "__main__":
    main()
