"""The evaluation suite is cloned first; git breaks off, and Python knows only its exit status."""

import os
import subprocess
import tempfile
from pathlib import Path

GIT = """#!/bin/sh
cat >&2 <<'END'
Cloning into 'third_party/evals'...
remote: Enumerating objects: 165365, done.
error: RPC failed; curl 56 GnuTLS recv error (-54): Error in the pull function.
error: 1620 bytes of body are still expected
fetch-pack: unexpected disconnect while reading sideband packet
fatal: early EOF
fatal: fetch-pack: invalid index-pack output
END
exit 128
"""

with tempfile.TemporaryDirectory() as folder:
    tool = Path(folder) / "git"
    tool.write_text(GIT)
    tool.chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}:{os.environ.get('PATH', '/usr/bin:/bin')}"}
    subprocess.run(
        ["git", "clone", "https://git.example.org/ml/evals.git", "third_party/evals"],
        check=True,
        env=environment,
    )
