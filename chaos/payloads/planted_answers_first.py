"""A bug for `plant.py`: changes are answered at once, and written a while later.

`Commits._keep` is redefined at the end of `flashruntime.service.commits`: calls are answered as
soon as they have run, and what they changed is committed BEHIND_S later, as a write-behind cache
does.
"""

MODULE = "flashruntime.service.commits"
NEEDS = "    def _keep("
CODE = '''

BEHIND_S = 0.5


def _keep_later(self: Commits, opened: Any, group: list[_Call]) -> None:
    """Answer, then commit (planted)."""
    _deliver(group)

    def commit() -> None:
        time.sleep(BEHIND_S)
        self._finish(opened, group)

    self._hand_over([], commit)


Commits._keep = _keep_later
'''
