"""Each round starts a fresh interpreter for each arm; inside it, CLOCK_MONOTONIC is read just
before and just after the import, so that starting Python does not count. The modules are compiled
and in the page cache (the first round is thrown away). `import pydantic` is the only dependency,
imported alone; `first use` also touches the names that a script needs to submit.
"""

import sys
from pathlib import Path

from benchmarks.comparators import bare
from benchmarks.scenario import Bench, Scenario
from benchmarks.schema import Interval, Section

PER_REPEAT = 4
FIRST_USE = "import flashruntime; flashruntime.submit; flashruntime.CommandWorkload"
TIMED = "import time; t = time.monotonic_ns(); {code}; print(time.monotonic_ns() - t)"


def run(bench: Bench) -> None:
    """Measure `import flashruntime` and its first use beside `import pydantic`."""
    place = bench.folder()
    taken = bench.take(
        bench.count(PER_REPEAT),
        {
            "import": lambda: imported("import flashruntime", place),
            "first use": lambda: imported(FIRST_USE, place),
            "import pydantic": lambda: imported("from pydantic import BaseModel", place),
        },
    )
    beside = {"import pydantic": taken["import pydantic"]}
    bench.report(
        taken["import"],
        variant="import flashruntime",
        comparators=beside,
        notes=["the public names load at their first use, so the import alone needs no pydantic"],
    )
    bench.report(
        taken["first use"],
        variant="first use",
        comparators=beside,
        notes=["first use: the import, and flash.submit and flash.CommandWorkload resolved"],
    )


def imported(code: str, place: Path) -> float:
    """Return the seconds that `code` takes in a fresh interpreter."""
    return int(bare.run([sys.executable, "-c", TIMED.format(code=code)], place)) / 1e9


SCENARIO = Scenario(
    name="import_time",
    section=Section.PERFORMANCE,
    hypothesis="Importing flashruntime costs at most 1.3 times what importing pydantic costs.",
    method=__doc__,
    unit="s",
    budget_s=30,
    interval=Interval(start="before the import statement", end="after it, same process"),
    run=run,
)
