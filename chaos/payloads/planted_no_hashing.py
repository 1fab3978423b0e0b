"""A bug for `plant.py`: checkpoints are never hashed.

`flashruntime.checkpoint.store._part`, which compares the bytes of a part with its manifest, is
redefined at the end of its module.
"""

MODULE = "flashruntime.checkpoint.store"
NEEDS = "\ndef _part("
CODE = '''

def _part(folder: int, part: Part) -> bytearray:
    """Return whatever is there (planted)."""
    return files.read_file(folder, part.key, part.size_bytes)[0]
'''
