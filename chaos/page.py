"""The pieces that pages are made of; what is shown in them is text, whatever it holds."""

import html
import json
import unicodedata
from collections.abc import Iterable
from itertools import repeat

from chaos.model import JsonValue
from chaos.style import STYLE

HIDDEN = {"Cc", "Cf", "Cs", "Zl", "Zp", "Cn"}


def safe(text: str) -> str:
    """Return text as markup that shows it, and does nothing else.

    What is no character to be seen (controls, line separators, marks that turn the direction of
    writing, halves of surrogates) is shown by its number; a line feed and a tab stay.
    """
    shown = "".join(c if c in "\n\t" or not _is_hidden(c) else _number(c) for c in text)
    return html.escape(shown)


def _is_hidden(character: str) -> bool:
    return unicodedata.category(character) in HIDDEN


def _number(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def whole(title: str, sections: Iterable[str], style: str = "") -> str:
    """Return a page that loads nothing; empty sections are left out."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{safe(title)}</title><style>{STYLE}{style}</style></head><body><main>\n"
        + "\n".join(section for section in sections if section)
        + "\n</main></body></html>\n"
    )


def badge(word: str) -> str:
    """Return a word with its colour."""
    return f'<span class="badge {safe(word)}">{safe(word)}</span>'


def table(
    heads: Iterable[str], rows: Iterable[Iterable[str]], ids: Iterable[str] | None = None
) -> str:
    """Return a table of markup; where there is little room each row is a block of its own.

    `ids` make each row the target of a link.
    """
    titles = [safe(title) for title in heads]
    head = "".join(f'<th scope="col">{title}</th>' for title in titles)
    names = repeat("") if ids is None else (f' id="{safe(name)}"' for name in ids)
    body = "".join(
        f"<tr{name}>"
        + "".join(
            f'<td data-head="{title}">{cell}</td>' for title, cell in zip(titles, row, strict=True)
        )
        + "</tr>"
        for name, row in zip(names, rows, strict=False)
    )
    return f'<table><thead><tr class="heads">{head}</tr></thead><tbody>{body}</tbody></table>'


def scrolled(label: str, markup: str, look: str = "scroll") -> str:
    """Return something large in a box of its own, which the keyboard can scroll too."""
    name = safe(label)
    return f'<div class="{look}" tabindex="0" role="region" aria-label="{name}">{markup}</div>'


def folded(title: str, value: JsonValue) -> str:
    """Return JSON behind its title."""
    body = safe(json.dumps(value, indent=1, sort_keys=True))
    return f"<details><summary>{safe(title)}</summary><pre>{body}</pre></details>"
