"""Which of the errors that were reported or printed is the one that ended the attempt."""

import re
from collections.abc import Sequence
from dataclasses import replace

from flashruntime.protocol.failures import Evidence
from flashruntime.protocol.failures import FailureClass as C
from flashruntime.recovery.names import OF_LOST_THREAD, WRAPPERS
from flashruntime.recovery.pattern import Pattern
from flashruntime.recovery.raised import Raised, printed, told, told_first
from flashruntime.recovery.rules import first_fit
from flashruntime.recovery.tail import MAX_MESSAGE, Form, Tail, read_tail

_INNER = Pattern(r"-- Process \d+ terminated with the following error:\n")
_RECORDED = "  traceback : Traceback (most recent call last):\n"
_DEDENT = Pattern(r"^  ", re.MULTILINE)
ROOT_CAUSE_SIGNAL = Pattern(r"  exitcode  : -(\d{1,2}) \(pid: \d+\)")
_LOADER_GAVE_UP = Pattern(r"DataLoader worker \(pid\(s\) [\d, ]+\) exited unexpectedly")
_ENV = {C.COMMUNICATION_ERROR, C.RESOURCE_EXHAUSTED, C.STORAGE_TIMEOUT, C.ACCELERATOR_FAILURE}


def find_cause(evidence: Evidence) -> Raised | None:
    """Return the error that ended the process: from its error file, else from the log's very end.

    A wrapper's error is returned only where the one that it wraps is not to be found.
    """
    error = _outermost(evidence)
    if error is not None and error.type_name in OF_LOST_THREAD:
        threads = read_tail(evidence.log_tail or "").threads
        return printed(threads[-1]) if threads else error
    if error is not None and _LOADER_GAVE_UP.match(error.message) and error.earlier:
        return error.earlier[-1]
    return error


def _outermost(evidence: Evidence) -> Raised | None:
    tail = read_tail(evidence.log_tail or "")
    if not evidence.error_type:
        return _of_log(tail, [printed(error) for error in tail.final])
    error = told_first(evidence)
    others = [told(each) for each in evidence.other_errors]
    if error.type_name in WRAPPERS:
        return _of_log(tail, [*(printed(each) for each in tail.final), error], others)
    if (others or tail.ranks or evidence.ranks > 1) and _is_symptom(error):
        of_ranks = [*others, *(printed(each) for each in tail.ranks)]
        return next((each for each in of_ranks if not _is_symptom(each)), error)
    last = printed(tail.final[-1]) if tail.final else None
    if last is not None and last.type_name == error.type_name and not error.earlier:
        error = replace(error, earlier=last.earlier)
    if last is not None and last.type_name == error.type_name:
        error = replace(error, preceding=last.preceding)
    return error


def find_abort(evidence: Evidence) -> Raised | None:
    """Return the C++ exception that made the process abort, or a rank's error that led to it."""
    tail = read_tail(evidence.log_tail or "")
    if not tail.final or tail.final[-1].form is not Form.TERMINATE:
        return None
    return _of_log(tail, [printed(error) for error in tail.final])


def _of_log(
    tail: Tail, final: Sequence[Raised], told_by_ranks: Sequence[Raised] = ()
) -> Raised | None:
    """The first error of any rank that is no mere symptom, else the last that was printed."""
    ranks = [*told_by_ranks, *(printed(error) for error in tail.ranks)]
    last = final[-1] if final else None
    if last is not None and not _is_symptom(last):
        return last
    candidates = ranks + (list(final[:-1]) if tail.launcher_seen or ranks else [])
    if last is not None and last.type_name in WRAPPERS:
        candidates += _wrapped(last)
        candidates += [] if tail.launcher_seen else list(final[:-1])
    known = [error for error in candidates if error.type_name not in WRAPPERS]
    causes = [error for error in known if not _is_symptom(error)]
    if not causes and last is not None and ROOT_CAUSE_SIGNAL.search(last.message):
        return last
    return next(iter([*causes, *known]), last)


def _is_symptom(error: Raised) -> bool:
    """Whether the error may only show that another process has failed."""
    rule = first_fit(error)
    return error.type_name in WRAPPERS or (rule is not None and rule.kind is C.COMMUNICATION_ERROR)


def _wrapped(error: Raised) -> list[Raised]:
    """The errors that a wrapper's own message quotes in full."""
    text = error.message[:MAX_MESSAGE]
    if found := _INNER.search(text):
        inner = text[found.end() :]
    elif _RECORDED in text:
        block = text.partition(_RECORDED)[2]
        inner = _DEDENT.sub("", f"  Traceback (most recent call last):\n{block}")
        inner = inner.partition("\n===")[0].partition("\n---")[0]
    else:
        return []
    return [printed(each) for each in read_tail(inner.rstrip()).final[-1:]]


def explained(error: Raised) -> Raised | None:
    """Return the error that `error` names as its cause, directly or over others, if one is known.

    Of an error that no rule knows, this is what it says of itself.
    """
    cause = error.cause
    while cause is not None and first_fit(cause) is None:
        index = error.earlier.index(cause)
        before = error.earlier[index - 1] if index else None
        cause = before if before is not None and before.explicit else None
    return cause


def led_to_by_environment(error: Raised) -> Raised | None:
    """Return the transient error that a script turned into `error`, if the traceback has one."""
    for each in error.earlier:
        rule = first_fit(each)
        if rule is not None and rule.kind in _ENV:
            return each
    return None
