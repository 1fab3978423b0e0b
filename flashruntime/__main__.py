"""`python -m flashruntime`."""

import sys

from flashruntime.cli import main

if __name__ == "__main__":
    sys.exit(main())
