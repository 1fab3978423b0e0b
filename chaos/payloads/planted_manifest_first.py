"""A bug for `plant.py`: the manifest comes first.

The step appears under its name with its manifest alone, everything synced; its parts follow.
`flashruntime.checkpoint.commit.publish` is redefined at the end of its module: it takes the parts
out of the way, and puts them in afterwards.
"""

MODULE = "flashruntime.checkpoint.commit"
NEEDS = "\ndef publish("
CODE = '''

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
