"""What pictures are made of: axes and marks as SVG text, without any library.

Colours are classes of the page's style sheet, so that a picture follows its light or dark theme.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

LETTER = 6.3
"""The usual width of a letter at the size of the labels, in units of the canvas."""
LOG_FROM = 30.0
"""From this ratio of largest to smallest on, an axis is logarithmic."""
_STEPS = (1.0, 2.0, 5.0)


@dataclass(frozen=True, slots=True)
class Axis:
    """Maps values between `low` and `high` to places between `begin` and `end`."""

    low: float
    high: float
    begin: float
    end: float
    log: bool = False

    def at(self, value: float) -> float:
        """Return the place of a value."""
        low, high, value = (
            _log(each) if self.log else each for each in (self.low, self.high, value)
        )
        return self.begin + (self.end - self.begin) * (value - low) / (high - low)

    def ticks(self, most: int) -> list[float]:
        """Return at most about `most` round values within the axis."""
        if not self.log:
            return _linear_ticks(self.low, self.high, most)
        first, last = math.floor(_log(self.low)), math.ceil(_log(self.high))
        every = [step * 10.0**power for power in range(first, last + 1) for step in _STEPS]
        inside = [value for value in every if self.low <= value <= self.high]
        tens = [value for value in inside if f"{value:e}".startswith("1.0")]
        chosen = inside if len(inside) <= most or len(tens) < 2 else tens
        return chosen[:: max(1, math.ceil(len(chosen) / most))]


def axis(values: Sequence[float], begin: float, end: float, *, from_zero: bool = False) -> Axis:
    """Return an axis on which all values have room: logarithmic where they differ a lot."""
    low, high = min(values), max(values)
    if low > 0 and high / low >= LOG_FROM:
        return Axis(low / 1.15, high * 1.15, begin, end, log=True)
    if from_zero:
        low, high = min(low, 0.0), max(high, 0.0)
    room = (high - low) * 0.05 or abs(high) * 0.05 or 1.0
    bottom = low if from_zero and low == 0.0 else low - room
    return Axis(bottom, high + room, begin, end)


def open_svg(width: float, height: float, label: str) -> str:
    """Return the opening tag, `label` being the text alternative."""
    return (
        f'<svg class="bench" viewBox="0 0 {width:g} {height:g}" role="img" '
        f'aria-label="{escape(" ".join(label.split()))}">'
    )


def line(x1: float, y1: float, x2: float, y2: float, style: str) -> str:
    """Return a line."""
    return f'<line class="{style}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def box(x1: float, y1: float, x2: float, y2: float, style: str) -> str:
    """Return a rectangle that can be seen, however small it is."""
    width, height = max(abs(x2 - x1), 1.0), max(abs(y2 - y1), 1.0)
    return (
        f'<rect class="{style}" x="{min(x1, x2):.1f}" y="{min(y1, y2):.1f}" '
        f'width="{width:.1f}" height="{height:.1f}"/>'
    )


def dot(x: float, y: float, style: str, radius: float = 2.6) -> str:
    """Return a disc."""
    return f'<circle class="{style}" cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}"/>'


def words(x: float, y: float, text: str, style: str = "") -> str:
    """Return text; the styles `mid` and `end` say what stands at `x`, else its beginning."""
    return f'<text class="{style}" x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'


def cut(text: str, room: float) -> str:
    """Return as much of a text as has room, with an ellipsis where that is not all."""
    letters = max(1, int(room / LETTER))
    return text if len(text) <= letters else text[: letters - 1].rstrip() + "…"


def short(value: float) -> str:
    """Return the number of a tick."""
    return f"{value:g}" if abs(value) < 10_000 else f"{value:.4g}".replace("e+0", "e")


def _log(value: float) -> float:
    return math.log10(value)


def _linear_ticks(low: float, high: float, most: int) -> list[float]:
    rough = (high - low) / max(most, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * each for each in (*_STEPS, 10.0) if power * each >= rough * 0.999)
    first = math.ceil(low / step)
    last = math.floor(high / step)
    return [float(f"{number * step:.12g}") for number in range(first, last + 1)]
