"""Inside the runtime image: what the recorded and judging scripts of a power loss share.

A bundle is a folder with `states.json`, a list of {"index", "tree": path -> digest or null}, and
the bytes of each digest in `blobs/`. A judge writes `outcomes.json` beside them.
"""

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from enum import StrEnum
from io import StringIO
from pathlib import Path

GO = signal.SIGUSR1


class Item(StrEnum):
    """What is there of something that was saved."""

    WHOLE = "whole"
    ABSENT = "absent"
    TORN = "torn"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Whether the volume could be used again, and what is there of each item."""

    usable: bool
    items: Mapping[str, Item]
    detail: str


def say(line: str) -> None:
    """Write a line with one system call, so that a trace shows it in its place."""
    os.write(sys.__stdout__.fileno() if sys.__stdout__ else 1, f"{line}\n".encode())


def answered(item: str) -> None:
    """Promise an item: from here on it must be there after every power loss."""
    say(f"chaos: answered {item}")


@contextmanager
def recorded() -> Iterator[None]:
    """Wait until the recorder is there; afterwards, until it is gone."""
    say("chaos: ready")
    signal.sigwait({GO})
    yield
    say("chaos: done")
    signal.sigwait({GO})


def build(bundle: Path, tree: Mapping[str, str | None], root: Path) -> None:
    """Make the volume of one state; parents come before what they hold."""
    root.mkdir(parents=True)
    for path, digest in sorted(tree.items()):
        if digest is None:
            (root / path).mkdir()
        else:
            shutil.copyfile(bundle / "blobs" / digest, root / path)


def told(look: Callable[[Path], Outcome], root: Path, index: int) -> dict[str, object]:
    """Judge one volume; what the runtime prints meanwhile is left out."""
    with redirect_stdout(StringIO()):
        found = look(root)
    return {
        "index": index,
        "usable": found.usable,
        "items": {name: str(item) for name, item in found.items.items()},
        "detail": found.detail,
    }


def judge(bundle: Path, scratch: Path, look: Callable[[Path], Outcome]) -> None:
    """Judge every state of a bundle on a volume of its own."""
    outcomes = []
    for state in json.loads((bundle / "states.json").read_text(encoding="utf-8")):
        root = scratch / f"state-{state['index']}" / "volume"
        build(bundle, state["tree"], root)
        outcomes.append(told(look, root, state["index"]))
        shutil.rmtree(root.parent)
    (bundle / "outcomes.json").write_text(json.dumps(outcomes), encoding="utf-8")


def run(record: Callable[[Path], None], look: Callable[[Path], Outcome]) -> int:
    """Do what the command line says: `record ROOT`, `judge BUNDLE SCRATCH` or `look ROOT`."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {GO})
    verb, *places = sys.argv[1:]
    paths = [Path(place) for place in places]
    if verb == "record":
        record(paths[0])
    elif verb == "judge":
        judge(paths[0], paths[1], look)
    elif verb == "look":
        print(json.dumps(told(look, paths[0], 0)))
    return 0
