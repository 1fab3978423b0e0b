"""Each snippet turns one plain PyTorch script into one that checkpoints and resumes with a
framework; all of them are run to their end in this very run, where their framework is installed.
Lines are those that difflib finds inserted or changed against the plain script, without blanks and
comments and without regard to indentation (which would count every line of a function body against
Ray). Import times are read inside fresh interpreters, in turn; dependencies are the distributions
that the package's metadata require, directly or not, without extras.
"""

import difflib
import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.comparators import bare, frameworks
from benchmarks.host import installed
from benchmarks.scenario import Bench, Scenario, expect
from benchmarks.schema import Section, Unavailable

SNIPPETS = Path(__file__).with_name("snippets")
VANILLA = "train_vanilla.py"
FORMS = {"accelerate": "train_accelerate.py", "ray": "train_ray.py"}
IMPORTS = {"accelerate": "import accelerate", "ray": "import ray, ray.train.torch"}
PER_REPEAT = 4
TIMED = "import time; t = time.monotonic_ns(); {code}; print(time.monotonic_ns() - t)"
REQUIRED = """
import importlib.metadata as m, json, re, sys
todo, seen = [sys.argv[1]], set()
while todo:
    name = re.sub(r"[-_.]+", "-", todo.pop()).lower()
    if name in seen: continue
    try: wanted = m.requires(name) or []
    except m.PackageNotFoundError: continue
    seen.add(name)
    todo += [re.match(r"[A-Za-z0-9._-]+", w)[0] for w in wanted if "extra ==" not in w]
print(json.dumps(len(seen) - 1))
"""


def run(bench: Bench) -> None:
    """Measure what adopting costs: lines, seconds of import, dependencies."""
    torch = installed("torch") is not None
    notes = _proved(bench) if torch else ["no torch here: the snippets were counted, not run"]
    ours, *others = (changed_lines(SNIPPETS / s) for s in ("train_flash.py", *FORMS.values()))
    bench.report(
        [ours],
        variant="lines",
        counted=True,
        comparators={name: [count] for name, count in zip(FORMS, others, strict=True)},
        notes=[*notes, "the count does not vary between repeats"],
    )
    _imports(bench)
    counts: dict[str, list[float] | None] = {name: _dependencies(bench, name) for name in FORMS}
    bench.report(
        [_required(sys.executable, "flashruntime", bench)],
        variant="dependencies",
        counted=True,
        unit="distributions",
        comparators=counts,
        notes=["torch, which Accelerate requires, counts with what it requires in turn"],
    )


def _proved(bench: Bench) -> list[str]:
    """Run every snippet; return what ran and what was counted only."""
    told = []
    for name, script in {"flashruntime": "train_flash.py", **FORMS}.items():
        try:
            python = sys.executable if name == "flashruntime" else frameworks.python(name)
        except Unavailable as error:
            told.append(f"{name}: its snippet was counted, not run: {error}")
            continue
        printed = bare.run([python, str(SNIPPETS / script)], bench.folder(), frameworks.ENV)
        expect("finished" in printed, f"{script} did not finish: {printed[-500:]}")
        version = "" if name == "flashruntime" else f" {frameworks.version(name)}"
        told.append(f"{name}{version}: its snippet was run to its end")
    return told


def _imports(bench: Bench) -> None:
    place = bench.folder()
    taken = bench.take(
        bench.count(PER_REPEAT),
        {
            "flash": _import(lambda: sys.executable, "import flashruntime", place),
            **{
                name: _import(partial(frameworks.python, name), code, place)
                for name, code in IMPORTS.items()
            },
        },
    )
    bench.report(
        taken["flash"],
        variant="import",
        unit="s",
        comparators={name: taken.get(name) for name in IMPORTS},
        notes=["`import flashruntime` loads its names at first use; accelerate imports torch"],
    )


def _import(python: Callable[[], str], code: str, place: Path) -> Callable[[], float]:
    def measure() -> float:
        argv = [python(), "-c", TIMED.format(code=code)]
        return int(bare.run(argv, place, frameworks.ENV).split()[-1]) / 1e9

    return measure


def _dependencies(bench: Bench, name: str) -> list[float] | None:
    try:
        return [_required(frameworks.python(name), name, bench)]
    except Unavailable as error:
        bench.note(f"{name}: not measured: {error}")
        return None


def _required(python: str, package: str, bench: Bench) -> float:
    return float(json.loads(bare.run([python, "-c", REQUIRED, package], bench.folder())))


def changed_lines(script: Path) -> float:
    """Return how many lines of code a form has that the plain script has not."""
    changed = difflib.ndiff(_code(SNIPPETS / VANILLA), _code(script))
    return float(sum(line.startswith("+ ") for line in changed))


def _code(path: Path) -> list[str]:
    lines = (line.strip() for line in path.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line and not line.startswith("#")]


SCENARIO = Scenario(
    name="adoption_cost",
    section=Section.PERFORMANCE,
    hypothesis=(
        "Adopting flashruntime takes a handful of lines and one dependency, fewer than ray or "
        "accelerate, and it imports faster."
    ),
    method=__doc__,
    unit="lines",
    budget_s=180,
    run=run,
)
