"""What a commit accepted is still there afterwards, byte for byte."""

from chaos.history import History, items
from chaos.model import JsonValue, Verdict
from chaos.ports import Invariant
from chaos.words import counted


def judge(history: History) -> tuple[Verdict, str]:
    """Compare accepted digests with the downloaded bytes."""
    roles = list(history.role_of().values())
    found = {
        str(artifact["key"]): artifact
        for role in roles
        for artifact in items(history.final(role)["artifacts"])
    }
    promised = [
        output
        for event in history.events()
        if event.type == "TASK_COMMIT_ACCEPTED"
        for output in items(event.data.get("outputs"))
    ]
    for output in promised:
        key = str(output["key"])
        if (problem := _problem(output, found.get(key))) is not None:
            return Verdict.VIOLATED, f"{key} {problem}"
    if not promised:
        return Verdict.UNKNOWN, "no output was ever accepted"
    return (
        Verdict.VALID,
        f"{counted(len(promised), 'accepted output')}, each read back with its accepted hash",
    )


def _problem(output: dict[str, JsonValue], artifact: dict[str, JsonValue] | None) -> str | None:
    if artifact is None:
        return "was accepted and is not among the artifacts of its job"
    if artifact.get("bytes_sha256") is None:
        return "was accepted and cannot be read"
    if artifact["bytes_sha256"] != output.get("sha256"):
        return f"hashes to {artifact['bytes_sha256']}, accepted was {output.get('sha256')}"
    return None


INVARIANT = Invariant("accepted_bytes", judge)
