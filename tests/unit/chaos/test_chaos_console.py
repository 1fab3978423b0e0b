"""What the harness says, and to whom."""

import subprocess
import sys


def test_a_closed_pipe_changes_no_exit_code() -> None:
    script = (
        "from chaos.console import Screen\n"
        "screen = Screen()\n"
        "for _ in range(3): screen.say('word'); screen.table(('head',), [('cell',)])\n"
        "raise SystemExit(3)\n"
    )
    words = [sys.executable, "-c", script]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.close()
        process.stdout = None
        _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (3, b"")
