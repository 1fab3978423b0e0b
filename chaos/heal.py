"""Puts right what interrupted runs left: by their journals, and by labels where those are gone."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from chaos.alive import under_way
from chaos.journal import NAME as JOURNAL
from chaos.journal import Journal, open_undos, undo_all
from chaos.model import Undo
from chaos.ports import Machine


@dataclass(slots=True)
class Healing:
    """What was done: runs put right, runs left alone because they are under way, failures."""

    healed: list[str] = field(default_factory=list)
    under_way: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        """Whether nothing failed."""
        return not self.failures


def heal(machine: Machine, folders: Iterable[Path], say: Callable[[str], None]) -> Healing:
    """Undo everything that is open, for every run that no living process carries out."""
    healing = Healing()
    for folder in folders:
        for journal in sorted(folder.glob(f"*/{JOURNAL}")):
            if journal.parent.is_symlink():
                continue
            try:
                _heal_journal(machine, journal, healing, say)
            except OSError as error:
                healing.failures.append(f"{journal} cannot be used: {error}")
    for run_id in machine.runs():
        if run_id in healing.under_way:
            continue
        if under_way(run_id):
            healing.under_way.append(run_id)
            continue
        say(f"removing what run {run_id} left")
        _heal_run(machine, run_id, healing)
    return healing


def _heal_journal(
    machine: Machine, path: Path, healing: Healing, say: Callable[[str], None]
) -> None:
    undos = open_undos(path)
    if not undos:
        return
    run_id = undos[0].run_id
    if under_way(run_id):
        healing.under_way.append(run_id)
        return
    say(f"undoing {len(undos)} steps of {path.parent.name}")
    journal = Journal(path)
    try:
        failures = undo_all(undos, machine.undo, lambda undo: journal.done(undo.undo_id))
    finally:
        journal.close()
    healing.failures += [f"{path.parent.name}: {failure}" for failure in failures]
    healing.healed.append(run_id)


def _heal_run(machine: Machine, run_id: str, healing: Healing) -> None:
    undo = Undo("stack", run_id, None, "stack_down")
    failures = undo_all((undo,), machine.undo, lambda _undo: None)
    healing.failures += [f"run {run_id}: {failure}" for failure in failures]
    if not failures and not machine.audit(run_id).clean:
        healing.failures.append(f"run {run_id}: {machine.audit(run_id)} is still there")
    if run_id not in healing.healed:
        healing.healed.append(run_id)
