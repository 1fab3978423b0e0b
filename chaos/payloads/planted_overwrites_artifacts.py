"""A bug for `plant.py`: whatever is uploaded last counts, accepted or not.

`flashruntime.leases.objects.place`, which refuses other bytes under the key of an accepted result,
is redefined at the end of its module.
"""

MODULE = "flashruntime.leases.objects"
NEEDS = "\ndef place("
CODE = '''

_place_unless_accepted = place


def place(
    tx: Transaction, row: ObjectRow, owner: LeaseRow | None, max_job_bytes: int | None = None
) -> ObjectRow:
    """Put it in the place of what is there (planted)."""
    present = tx.object(row.key)
    if present is None or not present.accepted:
        return _place_unless_accepted(tx, row, owner, max_job_bytes)
    tx.put_object(row)
    return row
'''
