"""A bug for `plant.py`: a resume leaves the random streams as the script has seeded them.

`flashruntime.torch.rng.restore` is redefined at the end of its module to do nothing.
"""

MODULE = "flashruntime.torch.rng"
NEEDS = "\ndef restore("
CODE = '''

def restore(*_arguments: object) -> None:
    """Leave them (planted)."""
'''
