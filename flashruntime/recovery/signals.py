"""Signals in the evidence of an ended attempt."""

import signal

from flashruntime.protocol.failures import EndedBy, Evidence

_FROM_OUTSIDE = {128 + signal.SIGKILL, 128 + signal.SIGTERM}


def fatal_signal(evidence: Evidence) -> int | None:
    """Return the signal that ended the process, also as a shell reports it (128 + number).

    An uncaught exception of a child does not explain why its parent was killed or told to stop.
    """
    if evidence.ended_by is EndedBy.SIGNAL:
        return evidence.signal
    code = evidence.exit_code or 0
    if evidence.ended_by is not EndedBy.EXIT or not 128 < code < 160:
        return None
    return None if evidence.error_type and code not in _FROM_OUTSIDE else code - 128


def signal_name(number: int | None) -> str:
    """Return a signal's name, or its number where it has none."""
    try:
        return signal.Signals(number or 0).name
    except ValueError:
        return f"signal {number}"
