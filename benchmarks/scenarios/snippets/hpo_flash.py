# The same sweep by flashruntime, as README.md of this project shows it.
import flashruntime as flash
from flashruntime.integrations.sklearn import hpo

grid = {"lr": [0.01 * (number + 1) for number in range(8)]}
sweep = hpo("trial.py", grid, metric="loss", maximize=False)
run = flash.submit(sweep, output_dir="results")
print("finished", run.best_trial())
