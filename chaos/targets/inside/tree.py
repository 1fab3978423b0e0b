"""List a task's checkpoint tree as it lies on the volume, every part hashed on request.

Request: {"root": path, "hash": bool}. Answer: {"steps", "staging", "lineage"}. A step is
`valid`, `torn` (no manifest) or `corrupt`: the manifest does not match its own digest, or a part is
missing, of another size, or does not hash to what the manifest says.
"""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

STEP = re.compile(r"step-([0-9]{6,})")
BLOCK_BYTES = 1 << 20


def digest(path: Path) -> str:
    """Return the sha256 of a file, read in blocks."""
    sha = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(BLOCK_BYTES):
            sha.update(block)
    return sha.hexdigest()


def part_fault(directory: Path, part: dict[str, Any], hashed: bool) -> str | None:
    """Say what is wrong with one part, or None."""
    path = directory / part["key"]
    if not path.is_file() or path.is_symlink():
        return f"part {part['key']} is missing"
    if path.stat().st_size != part["size_bytes"]:
        return f"part {part['key']} has {path.stat().st_size} of {part['size_bytes']} bytes"
    if hashed and digest(path) != part["sha256"]:
        return f"part {part['key']} does not hash to its sha256 in the manifest"
    return None


def sealed(data: bytes) -> dict[str, Any]:
    """Return a JSON object that states its own digest; ValueError unless the digest is right."""
    content: dict[str, Any] = json.loads(data)
    stated = content.pop("digest", None)
    canonical = json.dumps(content, allow_nan=False, sort_keys=True, separators=(",", ":"))
    if hashlib.sha256(canonical.encode()).hexdigest() != stated:
        raise ValueError("does not match its own digest")
    return content


def step_record(directory: Path, step: int, hashed: bool) -> dict[str, Any]:
    """Judge one step directory."""
    record: dict[str, Any] = {"step": step, "state": "valid", "reason": None}
    try:
        manifest = sealed((directory / "manifest.json").read_bytes())
        if manifest["step"] != step:
            raise ValueError(f"it is for step {manifest['step']}")
        record |= {key: manifest[key] for key in ("attempt_id", "manifest_id")}
        faults = [part_fault(directory, part, hashed) for part in manifest["parts"]]
    except FileNotFoundError:
        return record | {"state": "torn", "reason": "no manifest.json"}
    except (ValueError, KeyError, TypeError) as error:
        return record | {"state": "corrupt", "reason": f"manifest.json: {error!r}"}
    reasons = [fault for fault in faults if fault]
    return record | ({"state": "corrupt", "reason": "; ".join(reasons)} if reasons else {})


def steps(root: Path, hashed: bool) -> list[dict[str, Any]]:
    """Return the steps under `root`, newest first."""
    found = [
        (int(match[1]), entry)
        for entry in (root.iterdir() if root.is_dir() else ())
        if (match := STEP.fullmatch(entry.name)) and entry.is_dir()
    ]
    return [step_record(entry, step, hashed) for step, entry in sorted(found, reverse=True)]


def staging(root: Path) -> list[dict[str, Any]]:
    """Return what is being written, or was when its writer died."""
    found = []
    for directory in sorted((root / ".staging").glob("*/step-*")):
        match = STEP.match(directory.name)
        if match is None or not directory.is_dir():
            continue
        sizes = {entry.name: entry.stat().st_size for entry in directory.iterdir()}
        manifest = sizes.pop("manifest.json", None) is not None
        found.append(
            {
                "attempt_id": directory.parent.name,
                "step": int(match[1]),
                "parts": sizes,
                "manifest": manifest,
            }
        )
    return found


def lineage(root: Path) -> list[dict[str, Any]]:
    """Return who began on this tree, in order, and what each took over."""
    found = []
    for path in sorted((root / ".lineage").glob("[0-9]*.json")):
        try:
            entry = sealed(path.read_bytes())
            taken = entry["takes_over"] or {}
            found.append(
                {
                    "attempt_id": entry["attempt_id"],
                    "manifest_id": taken.get("manifest_id"),
                    "step": taken.get("step"),
                }
            )
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return found


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Return the tree as it lies there."""
    root = Path(request["root"])
    return {
        "steps": steps(root, request["hash"]),
        "staging": staging(root),
        "lineage": lineage(root),
    }
