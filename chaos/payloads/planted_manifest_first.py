"""Plant a bug into the runtime installed beside this interpreter: the manifest comes first.

Runs once, while the image of the planted build is made. The step appears under its name with its
manifest alone, everything synced; its parts follow. `flashruntime.checkpoint.commit.publish` is
redefined at the end of its module: it takes the parts out of the way, and puts them in afterwards.
"""

import importlib.util
import sys
from pathlib import Path

MODULE = "flashruntime.checkpoint.commit"
PLANT = '''

_publish_whole = publish


def publish(staged: Path, hold: Hold, admits: Admits, manifest: Manifest) -> Manifest:
    """Publish the manifest, then write the parts (planted)."""
    waiting = {part.key: (staged / part.key).read_bytes() for part in manifest.parts}
    for key in waiting:
        (staged / key).unlink()
    files.sync_directory(staged)
    published = _publish_whole(staged, hold, admits, manifest)
    with files.directory(hold.root / step_name(manifest.step)) as folder:
        for key, data in waiting.items():
            files.write_file(folder, key, data)
        os.fsync(folder)
    return published
'''


def main() -> int:
    """Append the bug; 1 where the function to replace is not there."""
    spec = importlib.util.find_spec(MODULE)
    if spec is None or spec.origin is None:
        print(f"{MODULE} is not installed here", file=sys.stderr)
        return 1
    path = Path(spec.origin)
    source = path.read_text(encoding="utf-8")
    if "\ndef publish(" not in source:
        print(f"{path} defines no function 'publish': nothing to replace", file=sys.stderr)
        return 1
    path.write_text(source + PLANT, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
