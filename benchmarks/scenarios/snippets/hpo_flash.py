# The same sweep by flashruntime, as README.md of this project shows it.
import sys

import flashruntime as flash
from flashruntime.integrations.sklearn import hpo

grid = {"lr": [0.01 * (number + 1) for number in range(8)]}
sweep = hpo("trial.py", grid, metric="loss", maximize=False, python=sys.executable)
parallel = int(sys.argv[1]) if len(sys.argv) > 1 else None
run = flash.submit(sweep, output_dir="results", parallel=parallel)
print("finished", run.best_trial())
