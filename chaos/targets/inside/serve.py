"""Answers requests on stdin, one JSON object a line, until stdin ends."""

import json
import sys
from collections.abc import Callable
from typing import Any

from chaos.targets.inside import (
    canary,
    clock,
    damage,
    evidence,
    files,
    packets,
    probe,
    processes,
    room,
    rot,
    slay,
    tree,
    watch,
)

SCRIPTS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "canary": canary.answer,
    "clock": clock.answer,
    "damage": damage.answer,
    "evidence": evidence.answer,
    "files": files.answer,
    "packets": packets.answer,
    "probe": probe.answer,
    "processes": processes.answer,
    "room": room.answer,
    "rot": rot.answer,
    "slay": slay.answer,
    "tree": tree.answer,
    "watch": watch.answer,
}


def main() -> None:
    """Serve: {"script", "request"} -> {"answer"} or {"error"}."""
    for line in sys.stdin:
        call = json.loads(line)
        reply: dict[str, Any]
        try:
            reply = {"answer": SCRIPTS[call["script"]](call["request"])}
        except Exception as error:  # noqa: BLE001 (process boundary: the asker is told)
            reply = {"error": f"{type(error).__name__}: {error}"}
        sys.stdout.write(json.dumps(reply) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
