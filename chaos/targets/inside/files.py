"""Find files by a pattern below a task's checkpoint tree.

Request: {"root": path, "pattern": glob, "most": int, "lacking": name or null}. Answer: {"paths"},
relative to the root. With `lacking` only directories that hold files, and none of that name.
"""

from pathlib import Path
from typing import Any


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Return at most `most` paths; what vanishes while it is looked at is left out."""
    root, lacking, found = Path(request["root"]), request["lacking"], []
    for path in root.glob(request["pattern"]):
        if lacking is None or _is_open(path, lacking):
            found.append(str(path.relative_to(root)))
        if len(found) >= request["most"]:
            break
    return {"paths": found}


def _is_open(folder: Path, lacking: str) -> bool:
    try:
        sizes = {entry.name: entry.stat().st_size for entry in folder.iterdir()}
    except OSError:
        return False
    return lacking not in sizes and sum(sizes.values()) > 0
