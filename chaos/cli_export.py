"""`python -m chaos export`: an experiment in the format of another tool that can run it."""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from chaos import registry, runner
from chaos.chaostoolkit import NOT_RUN
from chaos.console import Screen
from chaos.model import JsonValue
from chaos.ports import Machine
from chaos.runner import DEFAULT_OUT, DEFAULT_SEED, Options
from chaos.schedule import Plan

MODULE = "chaos.chaostoolkit"
FORMATS = ("chaostoolkit",)


def add_verb(verbs: Any) -> None:
    """Declare the verb and its options."""
    verb = verbs.add_parser("export", help="write an experiment for another tool to run")
    verb.set_defaults(verb=run, json=True)
    verb.add_argument("experiment", metavar="EXPERIMENT")
    verb.add_argument("--format", choices=FORMATS, default=FORMATS[0], help="default: %(default)s")
    verb.add_argument("--seed", type=int, default=DEFAULT_SEED, help="default: %(default)s")
    verb.add_argument("--workers", type=int, help="2 to 8; default: what the experiment states")
    verb.add_argument("--count", type=int, help="how often a fault is repeated, where it can be")
    verb.add_argument("--to", type=Path, metavar="FILE", help="default: standard output")


def run(arguments: argparse.Namespace, screen: Screen, _machine: Callable[[], Machine]) -> int:
    """Write the experiment; touches nothing else."""
    options = Options(seed=arguments.seed, workers=arguments.workers, count=arguments.count)
    plan, _ = runner.prepare(registry.experiment(arguments.experiment), options, {})
    text = json.dumps(chaostoolkit(plan, options), allow_nan=False, indent=2) + "\n"
    if arguments.to is None:
        sys.stdout.write(text)
    else:
        arguments.to.write_text(text, encoding="utf-8")
        screen.say(f"written to {arguments.to}; `chaos run {arguments.to}` runs it")
    return 0


def chaostoolkit(plan: Plan, options: Options) -> dict[str, JsonValue]:
    """Return a plan as an experiment of the Chaos Toolkit (its open experiment format)."""
    about: dict[str, JsonValue] = {"experiment": plan.experiment, "seed": plan.seed}
    where: dict[str, JsonValue] = {"python": "${chaos_python}", "out": "${chaos_out}"}
    return {
        "title": f"{plan.experiment}, seed {plan.seed}",
        "description": f"{plan.summary}. Deviates unless every fault landed and every invariant "
        "holds; the journal has the verdict and the run directory with its report.",
        "tags": ["flashruntime", *sorted({action.kind for action in plan.schedule})],
        "configuration": {
            "chaos_python": _variable("CHAOS_PYTHON", ".venv/bin/python"),
            "chaos_out": _variable("CHAOS_OUT", str(DEFAULT_OUT)),
        },
        "runtime": {"rollbacks": {"strategy": "always"}},
        "steady-state-hypothesis": {
            "title": "every fault landed and every invariant holds",
            "probes": [
                {
                    **_activity("probe", "the verdict of the run", "verdict", about),
                    "tolerance": {"type": "regex", "pattern": f"^({NOT_RUN}|valid)$"},
                }
            ],
        },
        "method": [
            _activity(
                "action",
                f"run {plan.experiment}",
                "run",
                {**about, **where, "options": _options(options)},
            )
        ],
        "rollbacks": [_activity("action", "heal", "heal", where)],
        "extensions": [_extension(plan)],
    }


def _variable(name: str, otherwise: str) -> JsonValue:
    return {"type": "env", "key": name, "default": otherwise}


def _activity(
    kind: str, name: str, function: str, arguments: dict[str, JsonValue]
) -> dict[str, JsonValue]:
    provider: JsonValue = {
        "type": "python",
        "module": MODULE,
        "func": function,
        "arguments": arguments,
    }
    return {"type": kind, "name": name, "provider": provider}


def _options(options: Options) -> list[JsonValue]:
    given = {"--workers": options.workers, "--count": options.count}
    return [word for name, n in given.items() if n is not None for word in (name, str(n))]


def _extension(plan: Plan) -> JsonValue:
    """Return what the run will do, for readers: the toolkit passes it over."""
    told = plan.to_json()
    return {
        "name": "flashruntime-chaos",
        **{name: told[name] for name in ("workload", "invariants", "schedule")},
    }
