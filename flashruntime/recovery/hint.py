"""The last line of the output, beside a reason that knows no error: for people, not evidence."""

from flashruntime.protocol.failures import EndedBy, Evidence, FailureClass
from flashruntime.recovery.pattern import Pattern

MAX_WORDS = 200
_STYLES = Pattern(r"\x1b\[[0-?]*[ -/]*[@-~]")


def with_last_words(kind: FailureClass, reason: str, evidence: Evidence) -> str:
    """Return the reason, with the last line of the output where no error is known.

    The line is a hint for people: nothing has been decided by it.
    """
    told = evidence.error_type or evidence.message
    if kind is not FailureClass.UNKNOWN:
        return reason
    if evidence.ended_by is not EndedBy.EXIT or not evidence.exit_code or told:
        return reason
    words = _last_line(evidence.log_tail or "")
    if not words or words in reason:
        return reason
    return f"{reason} (not evidence, its last line was: {words})"


def _last_line(text: str) -> str:
    for line in reversed(_STYLES.sub("", text).splitlines()):
        shown = "".join(character if character.isprintable() else " " for character in line)
        if words := " ".join(shown.split()):
            return words if len(words) <= MAX_WORDS else f"{words[: MAX_WORDS - 3]}..."
    return ""
