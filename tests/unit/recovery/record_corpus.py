"""Run every situation of the corpus for real and keep what the launcher saw as JSON.

python tests/unit/recovery/record_corpus.py NAME... records corpus/NAME.toml in corpus/NAME.json,
with NAME:ID only one of its situations.
Those of torch.toml need an interpreter with PyTorch (in the test image, little /dev/shm).
Under log_only a second run lacks the error file, as a program has that is no Python of ours.
"""

import json
import os
import sys
import tempfile
import tomllib
from pathlib import Path
from threading import Event
from typing import Any

from flashruntime.launch import torchrun
from flashruntime.launch.environment import child_environment
from flashruntime.launch.local import LocalLauncher
from flashruntime.launch.progress import log_tail
from flashruntime.launch.spec import LaunchSpec
from flashruntime.protocol.failures import EndedBy, Evidence

CORPUS = Path(__file__).parent / "corpus"
LIMIT_S = 60.0


def record(situation: dict[str, Any], *, reported: bool) -> dict[str, Any]:
    """Return the evidence of one real run, its temporary directory called /job."""
    if "evidence" in situation:
        return dict(situation["evidence"])
    with tempfile.TemporaryDirectory() as place:
        root = Path(place).resolve()
        (root / "train.py").write_text(situation.get("code", ""), "utf-8")
        evidence = _run(situation, root, reported=reported)
        text = json.dumps(evidence.model_dump(mode="json", exclude_none=True))
        places = {str(root): "/job", sys.prefix: "/venv", sys.base_prefix: "/usr"}
        for found, shown in places.items():
            text = text.replace(found, shown)
        return json.loads(text)


def _run(situation: dict[str, Any], root: Path, *, reported: bool) -> Evidence:
    log, error_file, of_ranks = root / "log", root / "error.json", root / "ranks.json"
    argv = tuple(situation.get("argv") or (sys.executable, "train.py"))
    path = os.pathsep.join([str(Path(sys.executable).parent), "/usr/bin", "/bin"])
    given = {"PYTHONUNBUFFERED": "1", "PATH": path}
    if reported:
        given["FLASHML_ERROR_FILE"] = str(error_file)
    if "ranks" in situation:
        argv = torchrun.torchrun_argv(["train.py"], situation["ranks"])
        if reported:
            given[torchrun.ERROR_FILE_VARIABLE] = str(of_ranks)
    spec = LaunchSpec(argv, root, child_environment(os.environ, {}, given), log, error_file)
    process = LocalLauncher().launch(spec)
    if "stop_at" in situation:
        while situation["stop_at"] not in log_tail(log):
            Event().wait(0.02)
        process.stop(5.0)
    evidence = process.wait(LIMIT_S)
    assert evidence is not None, situation["id"]
    if "ranks" in situation and evidence.error_type in {None, torchrun.WRAPPER}:
        kind, said = torchrun.read_torchrun_error(of_ranks)
        if said is not None:
            evidence = evidence.model_copy(update={"error_type": kind, "message": said})
    assert evidence.ended_by is not EndedBy.WORKER_ERROR, evidence
    return evidence.model_copy(update={"log_tail": log_tail(log)[-20_000:]})


def main(names: list[str]) -> None:
    for name, _, only in (each.partition(":") for each in names):
        kept = CORPUS / f"{name}.json"
        situations = tomllib.loads((CORPUS / f"{name}.toml").read_text("utf-8"))["situation"]
        seen: dict[str, Any] = json.loads(kept.read_text("utf-8")) if only else {}
        for each in situations:
            if only not in {"", each["id"]}:
                continue
            seen[each["id"]] = record(each, reported=True)
            if each.get("log_only"):
                seen[f"{each['id']}/log-only"] = record(each, reported=False)
        kept.write_text(json.dumps(seen, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
