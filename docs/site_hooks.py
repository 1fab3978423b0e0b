"""What MkDocs calls as it builds the site: collects pages and checks every table of results."""

from pathlib import Path
from typing import Any

import site_tables
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

from benchmarks import pages
from benchmarks.schema import BenchError, Document

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
INCLUDED = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "LICENSE": "LICENSE.txt",
}
LINKS = {
    "](docs/": "](",
    "](LICENSE)": "](LICENSE.txt)",
    "](../README.md": "](index.md",
    "](../": "](",
}
OPTIONAL = "?"
_documents: dict[str, Document] = {}


def on_config(config: Any) -> Any:
    """Read the results; leave out optional entries of the navigation whose page is not there."""
    _documents.clear()
    try:
        _documents.update(pages.committed())
    except BenchError as error:
        raise PluginError(str(error)) from error
    config.nav = _present(config.nav)
    config.watch = [str(ROOT / name) for name in ("docs", "benchmarks", *INCLUDED)]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add what stands in docs/, at the top of the project, and in the result files."""
    for name, text in _collected().items():
        files.append(File.generated(config, name, content=text))
    for path in sorted(DOCS.glob("*.svg")):
        files.append(File.generated(config, path.name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Fill in the tables that are made from the code."""
    try:
        return site_tables.filled(markdown)
    except KeyError as error:
        known = ", ".join(site_tables.TABLES)
        raise PluginError(f"{page.file.src_uri}: no table {error}; known: {known}") from error


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """End the build where a table shows a result that no file holds."""
    try:
        pages.check(page.file.src_uri, html, _documents)
    except BenchError as error:
        raise PluginError(str(error)) from error
    return html


def _collected() -> dict[str, str]:
    texts = {name: _linked(ROOT / source) for source, name in INCLUDED.items()}
    texts |= {path.name: _linked(path) for path in sorted(DOCS.glob("*.md"))}
    return texts | pages.pages(_documents)


def _linked(path: Path) -> str:
    """Return a page whose links hold in the site as they hold in the checkout."""
    text = path.read_text(encoding="utf-8")
    for checkout, site in LINKS.items():
        text = text.replace(checkout, site)
    return text


def _present(entry: Any) -> Any:
    if isinstance(entry, list):
        return [kept for each in entry if (kept := _present(each)) is not None]
    if isinstance(entry, dict):
        kept = {title: found for title, each in entry.items() if (found := _present(each))}
        return kept or None
    if not str(entry).endswith(OPTIONAL):
        return entry
    name = str(entry).removesuffix(OPTIONAL)
    return name if (DOCS / name).exists() else None
