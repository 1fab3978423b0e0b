"""Jobs whose answers get lost: at a claim, at a completion, and at a submission of its own.

`claims` has more tasks than there are workers; `submitted` comes on the path of the clients.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from chaos.model import JobRequest, JsonMap

SCRIPT = Path(__file__).resolve().parents[1] / "payloads" / "trial.py"
CLAIMS, COMPLETES, SUBMITTED = "claims", "completes", "submitted"
STEPS, EVERY, TASKS = 300, 30, 6
SAVES = STEPS // EVERY
LEASE_S = 12.0


@dataclass(frozen=True, slots=True)
class Answers:
    """The reference, and a job for each call whose answer is lost."""

    name: str = "answers"

    def jobs(self, seed: int, count: int) -> Mapping[str, JobRequest]:
        """Return the jobs; those of one task train alike."""
        del count
        reference = JobRequest(
            name="answers",
            command=_command(seed, "0"),
            files={SCRIPT.name: SCRIPT.read_bytes()},
            required_outputs=("metrics.json",),
            lease_s=LEASE_S,
            keep_checkpoints=SAVES,
        )
        tasks: tuple[JsonMap, ...] = tuple({"trial": number} for number in range(TASKS))
        like = replace(reference, like="reference")
        several = replace(reference, command=_command(seed, "{trial}"), task_params=tasks)
        return {
            "reference": reference,
            SUBMITTED: replace(like, starts_after="reference", through_proxy=True),
            COMPLETES: replace(like, starts_after="reference"),
            CLAIMS: replace(several, starts_after="reference"),
        }


def _command(seed: int, trial: str) -> tuple[str, ...]:
    options = {"--steps": STEPS, "--every": EVERY, "--seed": seed % 2**32, "--trial": trial}
    return ("python3", SCRIPT.name, *(str(word) for pair in options.items() for word in pair))


WORKLOAD = Answers()
