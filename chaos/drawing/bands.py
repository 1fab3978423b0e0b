"""From when until when each fault was on: from firing to what undid it."""

from dataclasses import dataclass
from itertools import accumulate

from chaos.drawing.canvas import SIDE, Scale
from chaos.history import History, Record, integer, mapping
from chaos.page import safe

ROW, ROWS = 18, 4
LETTER = 6.2
DARKEST = 0.3
UNDONE = {"early", "done"}


@dataclass(frozen=True, slots=True)
class Band:
    """A fault from firing to undo, or to where its receipt says that it was off.

    `landed` is None without a receipt. Where nothing undid it, it ends with its receipt, and
    without one with the run.
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
        end = "then off" if self.is_undone else "its receipt complete, nothing to undo"
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
        _band(record, receipts.get(fault_id), undone.get(fault_id), last_ns)
        for fault_id, record in fired.items()
    )


def _band(fired: Record, receipt: Record | None, undone_ns: int | None, last_ns: int) -> Band:
    evidence = mapping(receipt.data.get("evidence")) if receipt is not None else {}
    off_ns = integer(evidence.get("off_ns"))
    ends = [at_ns for at_ns in (off_ns, undone_ns) if at_ns is not None and at_ns > fired.t_ns]
    otherwise = receipt.t_ns if receipt is not None else last_ns
    return Band(
        fault_id=str(fired.data.get("fault_id")),
        kind=str(fired.data.get("kind")),
        begin_ns=fired.t_ns,
        end_ns=min(ends, default=otherwise),
        landed=str(receipt.data["landed"]) if receipt is not None else None,
        is_undone=bool(ends),
    )


def at_once(found: tuple[Band, ...]) -> int:
    """Return how many faults were on at the same time, at most."""
    changes = sorted(change for band in found for change in ((band.begin_ns, 1), (band.end_ns, -1)))
    return max(accumulate(by for _, by in changes), default=0)


def rows_of(found: tuple[Band, ...], scale: Scale) -> dict[str, int]:
    """Return fault id -> row, for those that find room beside one another in `ROWS` rows."""
    ends = [0.0] * ROWS
    rows: dict[str, int] = {}
    for band in found:
        begin = label_begin(band, scale)
        row = next((number for number, end in enumerate(ends) if end <= begin), None)
        if row is not None:
            rows[band.fault_id] = row
            label = LETTER * len(band.fault_id) + 8
            ends[row] = max(scale.x(band.end_ns), begin + label) + 4
    return rows


def label_begin(band: Band, scale: Scale) -> float:
    """Return where the name of a band begins, so that it ends on the canvas."""
    return min(scale.x(band.begin_ns), scale.width - SIDE - LETTER * len(band.fault_id))


def drawn(found: tuple[Band, ...], scale: Scale, top: int, bottom: int) -> list[str]:
    """Draw each band over all that stands below, and its name above; at most one a pixel."""
    rows, seen = rows_of(found, scale), set[tuple[int, int, str]]()
    opacity = max(0.02, DARKEST / max(1, at_once(found)))
    parts = []
    for band in found:
        begin, end = scale.x(band.begin_ns), scale.x(band.end_ns)
        width = max(2.0, end - begin)
        tone = "landed" if band.landed == "landed" else "missed"
        if (place := (round(begin), round(width), tone)) not in seen:
            seen.add(place)
            parts.append(
                f'<rect class="band {tone}" x="{begin:.1f}" y="{top}" width="{width:.1f}" '
                f'height="{bottom - top}" fill-opacity="{opacity:.3f}">'
                f"<title>{safe(band.told)}</title></rect>"
            )
        if (row := rows.get(band.fault_id)) is not None:
            x, y = label_begin(band, scale) + 3, top + 13 + ROW * row
            parts.append(f'<text class="fault" x="{x:.1f}" y="{y}">{safe(band.fault_id)}</text>')
    if hidden := len(found) - len(rows):
        parts.append(f'<text class="lane" x="10" y="{top - 4}">and {hidden} faults more</text>')
    return parts
