"""A bug for `plant.py`: nothing is ever fsynced.

At the end of `flashruntime.checkpoint.files`, which every save imports, Python's fsync is made to
do nothing.
"""

MODULE = "flashruntime.checkpoint.files"
NEEDS = "os.fsync("
CODE = '''

def _nothing(_descriptor: int) -> None:
    """Leave it to luck (planted)."""


os.fsync = _nothing
'''
