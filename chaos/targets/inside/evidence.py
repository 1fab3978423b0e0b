"""Read what the payload of an attempt wrote down of itself, on the checkpoint volume.

Request: {"path": file}. Answer: {"evidence": the JSON object, or null where there is none}.
"""

import json
from pathlib import Path
from typing import Any


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Return the object; a file that is not whole yet counts as none."""
    try:
        found = json.loads(Path(request["path"]).read_bytes())
    except (OSError, ValueError):
        found = None
    return {"evidence": found if isinstance(found, dict) else None}
