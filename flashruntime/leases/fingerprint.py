"""Recognise the same failure at the same step."""

import re
import signal

from flashruntime.protocol.failures import EndedBy, Evidence

_VARYING = re.compile(r"0x[0-9a-fA-F]+|\d+")
_FROM_OUTSIDE = {signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT}
_MAX_MESSAGE = 512


def fingerprint(evidence: Evidence, step: int | None) -> str | None:
    """Return a text that two occurrences of one deterministic failure share, None if unknown.

    Only what the process did by itself at a known step counts; numbers in messages are ignored.
    """
    if step is None or evidence.ended_by not in {EndedBy.EXIT, EndedBy.SIGNAL}:
        return None
    if evidence.signal in _FROM_OUTSIDE:
        return None
    message = _VARYING.sub("#", (evidence.message or "")[:_MAX_MESSAGE])
    parts = (evidence.exit_code, evidence.signal, evidence.error_type, message, step)
    return "|".join(str(part) for part in parts)
