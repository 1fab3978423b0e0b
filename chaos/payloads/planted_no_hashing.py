"""Plant a bug into the runtime installed beside this interpreter: checkpoints are never hashed.

Runs once, while the image of the planted build is made. `flashruntime.checkpoint.store._part`,
which compares the bytes of a part with its manifest, is redefined at the end of its module.
"""

import importlib.util
import sys
from pathlib import Path

MODULE = "flashruntime.checkpoint.store"
PLANT = '''

def _part(folder: int, part: Part) -> bytearray:
    """Return whatever is there (planted)."""
    return files.read_file(folder, part.key, part.size_bytes)[0]
'''


def main() -> int:
    """Append the bug; 1 where the function to replace is not there."""
    spec = importlib.util.find_spec(MODULE)
    if spec is None or spec.origin is None:
        print(f"{MODULE} is not installed here", file=sys.stderr)
        return 1
    path = Path(spec.origin)
    source = path.read_text(encoding="utf-8")
    if "\ndef _part(" not in source:
        print(f"{path} defines no function '_part': nothing to replace", file=sys.stderr)
        return 1
    path.write_text(source + PLANT, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
