"""The documentation site as `make docs` builds it, from a copy with a planted result."""

import os
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

import pytest

from benchmarks.scenario import Bench, Scenario
from benchmarks.schema import Document, Host, Section, save

ROOT = Path(__file__).parents[2]
LOADED = re.compile(
    r"<(?:link|script|img|iframe|source|object|use)\b[^>]*?"
    r"""(?:href|src|data)=["']?(?P<where>[^"' >]+)"""
)
pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(find_spec("mkdocs") is None, reason="`make docs` installs MkDocs"),
]
HOST = Host(
    os="Debian", cpu="Planted CPU", cores=2, ram_gb=8.0, python="3.13.5", torch=None, kernel="6.1",
    flashruntime="0.1", load_1m=0.0, gpu=None, disk="ext4", commit="abc", place="host",
)  # fmt: skip


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What the site is made of, with one more result."""
    for name in ("docs", "benchmarks"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
    for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    planted = Scenario("planted", Section.RESILIENCE, "it holds", "how", "s", 1.0, lambda _: None)
    bench = Bench(planted, tmp_path, repeats=3)
    bench.report([0.5, 0.25, 1.0], comparators={"bare": [2.0, 1.0, 4.0]}, notes=["a caveat"])
    document = Document(
        host=HOST, started_at=datetime.now(UTC), command="python -m benchmarks run --all",
        smoke=False, complete=True, wall_s=1.0, rows=bench.rows,
    )  # fmt: skip
    save(document, tmp_path / "benchmarks/results/baseline-planted.json")
    return tmp_path


def build(checkout: Path) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", "docs/mkdocs.yml"],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(ROOT), "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_the_site_holds_the_results_and_loads_nothing_from_outside(checkout: Path) -> None:
    code, said = build(checkout)
    assert code == 0, said
    site = checkout / "site"
    page = (site / "benchmarks/resilience.html").read_text()
    assert "<td>0.5</td>" in page
    assert 'aria-label="Distribution of planted. flashruntime: median 0.5 s' in page
    assert "a caveat" in page
    loaded = {
        found["where"]
        for path in site.rglob("*.html")
        for found in LOADED.finditer(path.read_text())
    }
    assert {"site.css", "iframe-worker.js", "topology.svg"} <= loaded
    assert [where for where in loaded if "://" in where or where.startswith("//")] == []
    for path in site.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//", path.read_text())
    index = (site / "search/search_index.js").read_text()
    assert "a caveat" in index


@pytest.mark.parametrize(
    ("added", "told"),
    [
        ("| figure | median |\n|---|---|\n| planted | 0.4 |", "no result file holds 'planted'"),
        ("[gone](no-such-page.md)", "no-such-page.md"),
        ("[gone](local-runs.md#no-such-part)", "no-such-part"),
        ("<!-- table: weather -->", "no table 'weather'"),
    ],
)
def test_what_does_not_hold_ends_the_build(checkout: Path, added: str, told: str) -> None:
    page = checkout / "docs/checkpoints.md"
    page.write_text(f"{page.read_text()}\n{added}\n")
    code, said = build(checkout)
    assert code != 0
    assert told in said


def test_an_edited_result_ends_the_build(checkout: Path) -> None:
    path = checkout / "benchmarks/results/baseline-planted.json"
    path.write_text(path.read_text().replace('"median": 0.5', '"median": 0.05', 1))
    code, said = build(checkout)
    assert code != 0
    assert "median is 0.05, its samples give 0.5" in said
