"""Plant a bug into the runtime installed beside this interpreter: the ledger is never synced.

Runs once, while the image of the planted build is made. What `flashruntime.leases.journal` asks of
SQLite is redefined at the end of its module, so that a change is answered before it is durable.
"""

import importlib.util
import sys
from pathlib import Path

MODULE = "flashruntime.leases.journal"
PLANT = """

Journal.synchronous = property(lambda _self: "OFF")  # (planted)
"""


def main() -> int:
    """Append the bug; 1 where the property to replace is not there."""
    spec = importlib.util.find_spec(MODULE)
    if spec is None or spec.origin is None:
        print(f"{MODULE} is not installed here", file=sys.stderr)
        return 1
    path = Path(spec.origin)
    source = path.read_text(encoding="utf-8")
    if "def synchronous(" not in source:
        print(f"{path} defines no 'synchronous': nothing to replace", file=sys.stderr)
        return 1
    path.write_text(source + PLANT, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
