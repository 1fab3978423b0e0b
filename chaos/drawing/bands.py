"""From when until when each fault was on: from firing to what undid it."""

from dataclasses import dataclass

from chaos.drawing.canvas import Scale
from chaos.history import History, Record
from chaos.page import safe

ROW, ROWS = 18, 4
LETTER = 6.2
UNDONE = {"early", "done"}


@dataclass(frozen=True, slots=True)
class Band:
    """A fault from firing to undo; `landed` is None without a receipt.

    Where nothing undid it, it ends with its receipt, and without one with the run.
    """

    fault_id: str
    kind: str
    begin_ns: int
    end_ns: int
    landed: str | None
    is_undone: bool

    @property
    def told(self) -> str:
        """What it was, in words."""
        end = "undone" if self.is_undone else "its receipt complete, nothing to undo"
        seconds = (self.end_ns - self.begin_ns) / 1e9
        return (
            f"{self.fault_id} ({self.kind}): {self.landed or 'no receipt'}, {seconds:.1f} s, {end}"
        )


def bands(history: History) -> tuple[Band, ...]:
    """Return the faults that fired, in order of time."""
    fired: dict[str, Record] = {}
    receipts: dict[str, Record] = {}
    undone: dict[str, int] = {}
    for record in history.records:
        fault_id = str(record.data.get("fault_id"))
        if record.kind == "fault_firing":
            fired.setdefault(fault_id, record)
        elif record.kind == "fault_receipt":
            receipts[fault_id] = record
        elif record.kind == "undo" and record.data.get("state") in UNDONE and fault_id in fired:
            undone.setdefault(fault_id, record.t_ns)
    last_ns = history.records[-1].t_ns if history.records else 0
    return tuple(
        Band(
            fault_id=fault_id,
            kind=str(record.data.get("kind")),
            begin_ns=record.t_ns,
            end_ns=undone.get(
                fault_id, receipts[fault_id].t_ns if fault_id in receipts else last_ns
            ),
            landed=str(receipts[fault_id].data["landed"]) if fault_id in receipts else None,
            is_undone=fault_id in undone,
        )
        for fault_id, record in fired.items()
    )


def rows_of(found: tuple[Band, ...], scale: Scale) -> dict[str, int]:
    """Return fault id -> row, for those that find room beside one another in `ROWS` rows."""
    ends = [0.0] * ROWS
    rows: dict[str, int] = {}
    for band in found:
        begin = scale.x(band.begin_ns)
        row = next((number for number, end in enumerate(ends) if end <= begin), None)
        if row is not None:
            rows[band.fault_id] = row
            label = LETTER * len(band.fault_id) + 8
            ends[row] = max(scale.x(band.end_ns), begin + label) + 4
    return rows


def drawn(found: tuple[Band, ...], scale: Scale, top: int, bottom: int) -> list[str]:
    """Draw each band over all that stands below, and its name above; at most one a pixel."""
    rows, seen = rows_of(found, scale), set[tuple[int, int, str]]()
    parts = []
    for band in found:
        begin, end = scale.x(band.begin_ns), scale.x(band.end_ns)
        width = max(2.0, end - begin)
        tone = "landed" if band.landed == "landed" else "missed"
        if (place := (round(begin), round(width), tone)) not in seen:
            seen.add(place)
            parts.append(
                f'<rect class="band {tone}" x="{begin:.1f}" y="{top}" width="{width:.1f}" '
                f'height="{bottom - top}"><title>{safe(band.told)}</title></rect>'
            )
        if (row := rows.get(band.fault_id)) is not None:
            parts.append(_name(band, begin, top + 13 + ROW * row, scale.width))
    if hidden := len(found) - len(rows):
        parts.append(f'<text class="lane" x="10" y="{top - 4}">and {hidden} faults more</text>')
    return parts


def _name(band: Band, x: float, y: int, width: int) -> str:
    room = width - 10 - x
    if LETTER * len(band.fault_id) > room:
        return f'<text class="fault end" x="{width - 10}" y="{y}">{safe(band.fault_id)}</text>'
    return f'<text class="fault" x="{x + 3:.1f}" y="{y}">{safe(band.fault_id)}</text>'
