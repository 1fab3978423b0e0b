"""scikit-learn, or any script with `--name value` options: one trial for each set of parameters."""

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path

from flashruntime.errors import InvalidInput
from flashruntime.sdk.workload import CommandWorkload, OutputSpec, Source


def sweep(
    script: str,
    task_params: Sequence[Mapping[str, object]],
    source: Source | str | Path = ".",
    metric: str | None = None,
    maximize: bool = True,
    *,
    env: Mapping[str, str] | None = None,
    python: str = "python",
) -> CommandWorkload:
    """Return the workload that runs `python script --name value ...` for each set of parameters.

    The script writes its result to metrics.json, where `metric` is what `Run.best_trial` compares.
    Every set has the same names.
    """
    params = list(task_params)
    if not params:
        raise InvalidInput("sweep needs at least one set of parameters in task_params")
    names = list(params[0])
    for index, given in enumerate(params):
        if set(given) != set(names):
            raise InvalidInput(
                f"task_params[{index}] has the names {sorted(map(str, given))}, the first set has "
                f"{sorted(map(str, names))}; give every set the same names"
            )
    options = [word for name in names for word in (f"--{name}", f"{{{name}}}")]
    return CommandWorkload(
        [python, script, *options],
        source=source,
        env=env,
        outputs=OutputSpec(primary_metric=metric, maximize=maximize),
        task_params=params,
    )


def hpo(
    script: str,
    grid: Mapping[str, Sequence[object]],
    source: Source | str | Path = ".",
    metric: str | None = None,
    maximize: bool = True,
    *,
    env: Mapping[str, str] | None = None,
    python: str = "python",
) -> CommandWorkload:
    """Return the sweep over every combination of the values in `grid`."""
    for name, values in grid.items():
        if isinstance(values, str) or not isinstance(values, Sequence) or not values:
            raise InvalidInput(f"grid[{name!r}] must be a list of at least one value")
    combinations = [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
    return sweep(script, combinations, source, metric, maximize, env=env, python=python)
