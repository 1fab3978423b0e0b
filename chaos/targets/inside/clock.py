"""Say how far the wall clock of a container is off: in a file that libfaketime reads in it.

Request: {"path": file, "offset_s": number}. Answer: {"written": text}. The file is replaced as a
whole, so that nobody reads half of it.
"""

from pathlib import Path
from typing import Any


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Replace the file."""
    path, text = Path(request["path"]), f"{request['offset_s']:+.3f}"
    beside = path.with_name(f"{path.name}.new")
    beside.write_text(f"{text}\n", encoding="ascii")
    beside.chmod(0o644)
    beside.replace(path)
    return {"written": text}
