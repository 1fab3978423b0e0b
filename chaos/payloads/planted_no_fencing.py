"""Plant a bug into the runtime installed beside this interpreter: a stale lease is never refused.

Runs once, while the image of the planted build is made. The one function that fences,
`flashruntime.leases.transitions.holds`, is redefined at the end of its module to say yes always.
"""

import importlib.util
import sys
from pathlib import Path

MODULE = "flashruntime.leases.transitions"
PLANT = '''

def holds(*_arguments: object, **_options: object) -> bool:
    """Say yes to everybody (planted)."""
    return True
'''


def main() -> int:
    """Append the bug; 1 where the function to replace is not there."""
    spec = importlib.util.find_spec(MODULE)
    if spec is None or spec.origin is None:
        print(f"{MODULE} is not installed here", file=sys.stderr)
        return 1
    path = Path(spec.origin)
    source = path.read_text(encoding="utf-8")
    if "\ndef holds(" not in source:
        print(f"{path} defines no function 'holds': nothing to replace", file=sys.stderr)
        return 1
    path.write_text(source + PLANT, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
