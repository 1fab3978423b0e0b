"""A bug for `plant.py`: a stale lease is never refused.

The one function that fences, `flashruntime.leases.transitions.holds`, is redefined at the end of
its module to say yes always.
"""

MODULE = "flashruntime.leases.transitions"
NEEDS = "\ndef holds("
CODE = '''

def holds(*_arguments: object, **_options: object) -> bool:
    """Say yes to everybody (planted)."""
    return True
'''
