"""Plants a bug into the runtime installed beside this interpreter, while its image is made.

Usage: plant.py PLANT, the name of a module beside this one that says `MODULE`, what has to stand
in its source (`NEEDS`), and the `CODE` that is appended to it.
"""

import importlib
import importlib.util
import sys
from pathlib import Path


def main() -> int:
    """Append the bug; 1 where what it replaces is not there."""
    plant = importlib.import_module(sys.argv[1])
    spec = importlib.util.find_spec(plant.MODULE)
    if spec is None or spec.origin is None:
        print(f"{plant.MODULE} is not installed here", file=sys.stderr)
        return 1
    path = Path(spec.origin)
    source = path.read_text(encoding="utf-8")
    if plant.NEEDS not in source:
        print(f"{path} has no {plant.NEEDS!r}: nothing to replace", file=sys.stderr)
        return 1
    path.write_text(source + plant.CODE, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
