"""What the Chaos Toolkit calls when it runs an exported experiment: run, verdict, heal.

Only the standard library is needed here. The harness runs as a process of its own, by the
interpreter that has it: the Chaos Toolkit may live in another environment.
"""

import json
import subprocess
from typing import Any

NOT_RUN = "not run"
CANNOT_RUN = "cannot run"
JUDGED = {0: "valid", 1: "violated", 3: "unknown"}
"""Exit codes of `python -m chaos run` that come with a verdict; all others mean that none was."""
_verdicts: dict[tuple[str, int], str] = {}


def run(
    experiment: str,
    seed: int,
    python: str = "python3",
    out: str = "chaos-runs",
    options: list[str] | None = None,
) -> dict[str, Any]:
    """Run an experiment and return exit code, verdict and run directory.

    Raise RuntimeError, with the last words of the harness, where it could not be run.
    """
    _verdicts[experiment, seed] = CANNOT_RUN
    command = ["run", experiment, "--seed", str(seed), "--out", out, "--json", *(options or [])]
    done = _chaos(python, command)
    if done.returncode not in JUDGED:
        raise RuntimeError(f"exit code {done.returncode}: {done.stderr.strip()[-500:]}")
    verdict = JUDGED[done.returncode]
    _verdicts[experiment, seed] = verdict
    folders = [str(each["run_dir"]) for each in json.loads(done.stdout)]
    return {"exit_code": done.returncode, "verdict": verdict, "run_dir": folders[0]}


def verdict(experiment: str, seed: int) -> str:
    """Return the verdict of the run of this process, "not run" before there is one."""
    return _verdicts.get((experiment, seed), NOT_RUN)


def heal(python: str = "python3", out: str = "chaos-runs") -> str:
    """Undo whatever an interrupted run left; raise RuntimeError where something is still left."""
    done = _chaos(python, ["heal", "--out", out])
    if done.returncode != 0:
        raise RuntimeError(f"exit code {done.returncode}: {done.stdout.strip()[-500:]}")
    return done.stdout.strip()


def _chaos(python: str, arguments: list[str]) -> "subprocess.CompletedProcess[str]":
    command = [python, "-m", "chaos", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)
