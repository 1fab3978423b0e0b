"""The list of a run's events, and links to its rows from whatever names one of them."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from chaos.history import Event, History, Record, integer, items, mapping, text
from chaos.page import safe

MOST_ROWS = 1000
WORD = re.compile(r"\bevents? \d+|[A-Za-z0-9][\w./#-]*[A-Za-z0-9]")
OF_FAULTS = ("fault_armed", "fault_firing", "fault_fired", "fault_receipt", "undo", "note")
OF_RUN = ("steady", "job_submitted", "healed", "audit", "job_final", "end")
LONGEST = 240


@dataclass(frozen=True, slots=True)
class Row:
    """One row: where a link finds it, when, who and what; `rank` says who goes last."""

    anchor: str
    at_ns: int
    what: str
    about: str
    detail: str
    rank: int


class Events:
    """The events of a run as rows, and the words that stand for them."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._cited: set[str] = set()
        self._words = _words(history)

    def linked(self, sentence: str) -> str:
        """Return a sentence as markup, each name in it that has a row as a link to it."""
        parts, end = [], 0
        for found in WORD.finditer(sentence):
            anchor = self._anchor(found[0])
            if anchor is not None:
                parts.append(safe(sentence[end : found.start()]))
                parts.append(self.link(anchor, found[0]))
                end = found.end()
        return "".join([*parts, safe(sentence[end:])])

    def link(self, anchor: str, word: str) -> str:
        """Return a link to a row, which is shown then however many others there are."""
        self._cited.add(anchor)
        return f'<a href="#{anchor}">{safe(word)}</a>'

    def _anchor(self, word: str) -> str | None:
        kind, _, number = word.partition(" ")
        return self._words.get(f"event {number}" if number and kind.startswith("event") else word)

    def rows(self) -> tuple[list[Row], int]:
        """Return the rows to show in order of time, and how many there are in all.

        Of very many those stay that something links to, then those of faults, then the first.
        """
        found = [*_rows(self._history, self._cited)]
        kept = sorted(found, key=lambda row: (row.anchor not in self._cited, row.rank))[:MOST_ROWS]
        return sorted(kept, key=lambda row: row.at_ns), len(found)


def anchor_of(record: Record) -> str:
    """Return where the row of a record is: of an event, where that of its id is."""
    number = integer(record.data.get("id")) if record.kind == "event" else None
    return f"record-{record.seq}" if number is None else f"event-{number}"


def _words(history: History) -> dict[str, str]:
    """Return word -> row, of each id the first row that is about it, of a fault its receipt."""
    words: dict[str, str] = {}
    for record in history.records:
        if record.kind == "job_submitted":
            words.setdefault(str(record.data.get("job_id")), anchor_of(record))
        elif record.kind == "committed":
            for step in items(record.data.get("steps")):
                words.setdefault(str(step.get("manifest_id")), anchor_of(record))
        elif record.kind == "fault_receipt":
            words[str(record.data.get("fault_id"))] = anchor_of(record)
    for event in history.events():
        row = f"event-{event.id}"
        words[f"event {event.id}"] = row
        for name in (event.lease_id, event.task_id):
            if name is not None and (event.type == "LEASE_CLAIMED" or name == event.task_id):
                words.setdefault(name, row)
    return words


def _rows(history: History, cited: set[str]) -> Iterator[Row]:
    yield from (_of_event(event) for event in history.events())
    for record in history.records:
        if record.kind in OF_FAULTS or record.kind in OF_RUN:
            yield _of_record(record, 1 if record.kind in OF_FAULTS else 0)
        elif record.kind == "committed" or _is_cited(record, cited):
            yield _of_record(record, 3)


def _is_cited(record: Record, cited: set[str]) -> bool:
    return record.kind != "event" and anchor_of(record) in cited


def _of_event(event: Event) -> Row:
    about = " ".join(filter(None, (text(event.data.get("node_id")), event.lease_id)))
    return Row(
        f"event-{event.id}",
        event.mono_ns,
        f"{event.id} {event.type}",
        about or event.task_id or event.job_id or "",
        _told({name: value for name, value in event.data.items() if name != "node_id"}),
        2,
    )


def _of_record(record: Record, rank: int) -> Row:
    data = record.data
    about = data.get("fault_id") or data.get("role") or record.source
    names = ("landed", "state", "action", "text", "reason", "end", "kind", "target", "when")
    short: Mapping[str, object] = {name: data[name] for name in names if data.get(name)}
    if record.kind == "committed":
        short = {"steps": [step.get("step") for step in items(data.get("steps"))]}
    elif record.kind == "job_final":
        short = {"state": mapping(data.get("job")).get("state")}
    return Row(anchor_of(record), record.t_ns, record.kind, str(about), _told(short), rank)


def _told(data: Mapping[str, object]) -> str:
    told = json.dumps(dict(data), sort_keys=True) if data else ""
    return told if len(told) <= LONGEST else f"{told[:LONGEST]} …"
