"""Report and coverage in a real browser, from runs that the in-memory machine made."""

import json
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any

import pytest

from chaos import around, coverage_page, registry, report
from chaos.cli_coverage import covered
from chaos.drawing.bands import bands
from chaos.history import History
from chaos.judge import invariants_of, judge
from chaos.testing import FakeMachine
from chaos.testing.story import Fate, Story
from tests.integration.browser import Browser, Page
from tests.unit.chaos.conftest import Harness, KillHolder, kill_at

pytestmark = pytest.mark.integration
HOSTILE = (
    "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>\u2028"
)
AXE = resources.files("axe_core_python").joinpath("axe.min.js")
RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]}
USABLE_S = 5.0
OPEN_ALL = "document.querySelectorAll('details').forEach((one) => { one.open = true })"


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


def made(folder: Path) -> None:
    """Save a run with two faults, a hostile log and a violated invariant, its report, and more."""
    run = folder / "run"
    run.mkdir()
    harness = Harness(FakeMachine(), run)
    harness.run(KillHolder(), kill_at(20), kill_at(60, "kill-2"))
    history = harness.history
    fired = [record.t_ns for record in history.records if record.kind == "fault_firing"]
    line = json.dumps({"mono_ns": fired[0], "message": "out of cheese"})
    (run / "logs" / "worker-1.log").write_text(f"{line}\n{HOSTILE}\n", encoding="utf-8")
    report.write(run, judge(history, registry.invariants(invariants_of(history))), history)
    (folder / "coverage.html").write_text(coverage_page.html(covered(folder)), encoding="utf-8")
    jobs = {f"job-{n:03}": [Fate.KILLED, Fate.CRASHED, Fate.ZOMBIE] for n in range(260)}
    long = History(Story(Random(2), jobs).records)
    judgement = judge(History(long.records[:3_000]), registry.invariants(["one_live_lease"]))
    logs = around.read(run / "logs", long, bands(long))
    (folder / "long.html").write_text(report.html(judgement, long, logs), encoding="utf-8")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("pages")
    made(folder)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as running:
        yield running


PAGES = ["run/report.html", "coverage.html"]


def opened(page: Page, url: str) -> Page:
    page.open(url)
    page.until("document.readyState === 'complete' && document.querySelector('h1')")
    return page


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with browser.page(1200, 900, motion=False) as page:
        yield page
        assert page.complaints == []


@pytest.mark.parametrize("name", PAGES)
def test_a_page_asks_nobody_for_anything_and_runs_no_script(
    page: Page, address: str, name: str
) -> None:
    opened(page, f"{address}/{name}")
    page.run(OPEN_ALL)
    assert page.requested == [f"{address}/{name}"]
    assert page.run("document.querySelectorAll('script, link, img, iframe').length") == 0
    assert page.run("document.title") != "taken"


def test_what_a_container_said_is_shown_and_does_nothing(page: Page, address: str) -> None:
    opened(page, f"{address}/run/report.html")
    page.run(OPEN_ALL)
    text = page.text("main")
    assert HOSTILE.rstrip("\u2028") in text
    assert "out of cheese" in text


def box(page: Page, selector: str) -> list[dict[str, float]]:
    found: list[dict[str, float]] = page.run(
        f"[...document.querySelectorAll({json.dumps(selector)})].map((one) => "
        "{ const box = one.getBoundingClientRect(); "
        "return {top: box.top, bottom: box.bottom, width: box.width} })"
    )
    return found


def test_fault_bands_lie_over_leases_heartbeats_and_steps(page: Page, address: str) -> None:
    opened(page, f"{address}/run/report.html")
    drawn = box(page, ".wide .band.landed")
    assert len(drawn) == 2
    below = box(page, ".wide rect[rx]") + box(page, ".wide .heard") + box(page, ".wide .curve")
    assert len(below) >= 4 + 2 + 4
    for band in drawn:
        assert band["width"] > 0
        assert band["top"] < min(each["top"] for each in below)
        assert band["bottom"] > max(each["bottom"] for each in below)
    names = page.run("[...document.querySelectorAll('.wide .fault')].map((o) => o.textContent)")
    assert names == ["kill-1", "kill-2"]


def axe(page: Page) -> list[tuple[str, list[Any]]]:
    page.run(AXE.read_text("utf-8") + "; true")
    found = page.run(f"axe.run(document, {json.dumps(RULES)}).then((told) => told.violations)")
    return [(each["id"], [node["target"] for node in each["nodes"]][:3]) for each in found]


@pytest.mark.parametrize(
    ("name", "width", "dark"),
    [
        *((PAGES[0], width, dark) for width in (1200, 390) for dark in (False, True)),
        (PAGES[1], 1200, False),
        (PAGES[1], 390, True),
    ],
)
def test_axe_finds_nothing_and_nothing_hangs_over_the_side(
    browser: Browser, address: str, name: str, width: int, dark: bool
) -> None:
    with browser.page(width, 900, dark=dark, motion=False) as page:
        opened(page, f"{address}/{name}")
        page.run(OPEN_ALL)
        colour = page.run("getComputedStyle(document.body).backgroundColor")
        assert colour == ("rgb(21, 26, 33)" if dark else "rgb(255, 255, 255)")
        assert page.run("document.documentElement.scrollWidth <= innerWidth")
        assert axe(page) == []


FOCUS = """(() => { const at = document.activeElement; const style = getComputedStyle(at);
    return [at.tagName, at.getAttribute('href') || at.getAttribute('aria-label') || at.textContent,
            style.outlineStyle !== 'none'] })()"""


def test_the_keyboard_reaches_links_folds_and_boxes_and_sees_where_it_is(
    page: Page, address: str
) -> None:
    opened(page, f"{address}/run/report.html")
    seen: list[list[Any]] = []
    for _ in range(120):
        page.key("Tab", 9)
        at = page.run(FOCUS)
        if at[0] == "BODY" or (seen and at == seen[0]):
            break
        assert at[2], f"the focus on {at} cannot be seen"
        seen.append(at)
    assert {tag for tag, _, _ in seen} == {"A", "SUMMARY", "DIV"}
    assert "Events" in [name for _, name, _ in seen]
    stops = page.run("document.querySelectorAll('a, summary').length")
    assert len([at for at in seen if at[0] != "DIV"]) == stops


def test_a_link_leads_to_its_row_and_a_fold_opens_by_the_keyboard(page: Page, address: str) -> None:
    opened(page, f"{address}/run/report.html")
    page.run("document.querySelector('td a').focus()")
    target = page.run("document.activeElement.getAttribute('href')")
    page.key("Enter", 13, "\r")
    page.until(f"location.hash === {json.dumps(target)}")
    row, around_it = (
        box(page, f"[id='{target[1:]}']")[0],
        box(page, ".scroll[aria-label=Events]")[0],
    )
    assert around_it["top"] <= row["top"] + 1 <= around_it["bottom"]
    assert row["top"] < 900
    page.run("document.querySelector('summary').focus()")
    page.key("Enter", 13, "\r")
    page.until("document.querySelector('details').open")


@pytest.mark.parametrize("name", PAGES)
def test_paper_shows_what_a_screen_folds_away(browser: Browser, address: str, name: str) -> None:
    with browser.page(1000, 900, dark=True, motion=False) as page:
        opened(page, f"{address}/{name}")
        page.call("Emulation.setEmulatedMedia", media="print")
        assert page.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        hidden = page.run(
            "[...document.querySelectorAll('details > :not(summary)')].filter("
            "(one) => !one.checkVisibility({contentVisibilityAuto: true})).length"
        )
        assert hidden == 0
        cut = page.run(
            "[...document.querySelectorAll('.scroll')].filter("
            "(one) => one.scrollHeight > one.clientHeight + 1).length"
        )
        assert cut == 0
        assert page.call("Page.printToPDF")["data"]


def test_a_run_of_ten_thousand_records_stays_usable(page: Page, address: str) -> None:
    began = monotonic()
    opened(page, f"{address}/long.html")
    assert monotonic() - began < USABLE_S
    assert page.run("document.querySelectorAll('*').length") < 32_000
    began = monotonic()
    page.run("document.querySelector('summary').click()")
    page.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert monotonic() - began < 2
    assert page.run("document.documentElement.scrollWidth <= innerWidth")
