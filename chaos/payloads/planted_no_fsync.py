"""Plant a bug into the runtime installed beside this interpreter: nothing is ever fsynced.

Runs once, while the image of the planted build is made. At the end of
`flashruntime.checkpoint.files`, which every save imports, Python's fsync is made to do nothing.
"""

import importlib.util
import sys
from pathlib import Path

MODULE = "flashruntime.checkpoint.files"
PLANT = '''

def _nothing(_descriptor: int) -> None:
    """Leave it to luck (planted)."""


os.fsync = _nothing
'''


def main() -> int:
    """Append the bug; 1 where the module does not fsync in the way that it replaces."""
    spec = importlib.util.find_spec(MODULE)
    if spec is None or spec.origin is None:
        print(f"{MODULE} is not installed here", file=sys.stderr)
        return 1
    path = Path(spec.origin)
    source = path.read_text(encoding="utf-8")
    if "os.fsync(" not in source:
        print(f"{path} does not call os.fsync: nothing to replace", file=sys.stderr)
        return 1
    path.write_text(source + PLANT, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
