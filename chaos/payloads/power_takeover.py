"""Inside the runtime image: attempts that follow one another on a tree, and prune what is old.

Each begins, resumes, saves, and keeps one step alone. Only what can be resumed from is promised:
a step that was pruned, or comes back, harms nobody. Commands as in power_checkpoint.
"""

import sys
from pathlib import Path

from chaos.payloads.power_checkpoint import parts
from chaos.payloads.power_stage import Item, Outcome, answered, recorded, run
from flashruntime.attempt import Attempt, Settings
from flashruntime.checkpoint import Claim, Resume
from flashruntime.errors import FlashError

STEPS = (10, 20, 30)
LATER = 40


def attempt(root: Path, number: int) -> tuple[Attempt, Resume | None]:
    """Begin the attempt of this number; return it with what it resumes from."""
    claim = Claim(f"attempt-{number}", "job", number)
    mine = Attempt(Settings(ckpt_dir=root, output_dir=root.parent, claim=claim, keep=1))
    return mine, mine.resume()


def record(root: Path) -> None:
    """Save the first step before, and the others while, the recorder is there."""
    attempt(root, 1)[0].save(STEPS[0], parts(STEPS[0]))
    with recorded():
        for number, step in enumerate(STEPS[1:], 2):
            attempt(root, number)[0].save(step, parts(step))
            answered(f"resume-{step}")


def look(root: Path) -> Outcome:
    """Resume from the tree, check the bytes, and save once more."""
    try:
        mine, found = attempt(root, len(STEPS) + 1)
        step = found.step if found else 0
        if found is not None and found.parts != parts(step):
            return Outcome(False, {}, f"resumed from step {step} with other bytes")
        mine.save(LATER, parts(LATER))
        _, saved = attempt(root, len(STEPS) + 2)
    except FlashError as error:
        return Outcome(False, {}, f"{type(error).__name__}: {error}")
    items = {f"resume-{each}": Item.WHOLE if step >= each else Item.ABSENT for each in STEPS}
    went_on = saved is not None and saved.step == LATER
    return Outcome(went_on, items, "" if went_on else "the next save cannot be resumed from")


if __name__ == "__main__":
    sys.exit(run(record, look))
