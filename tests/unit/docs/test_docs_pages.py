"""The hand-written pages say what the code says, and need nothing from outside."""

import importlib.util
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType

import pytest

from flashruntime.config import CoordinatorSettings, WorkerSettings, token_source

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
VARIABLE = re.compile(r"FLASHML_[A-Z0-9_]+")
# Set by our own scripts for one another, as are those of the benchmarks; not for users.
INTERNAL = {
    "FLASHML_ARTIFACTS_MIB",
    "FLASHML_CHECKPOINTS_MIB",
    "FLASHML_CLIENTS_PORT",
    "FLASHML_DUMP_SIGNAL",
    "FLASHML_ENGINE_READY_S",
    "FLASHML_ENGINE_STATE",
    "FLASHML_HELPER_IMAGE",
    "FLASHML_LEDGER_MIB",
    "FLASHML_MAIN_PID",
    "FLASHML_OS_RELEASE",
    "FLASHML_PULL_TIMEOUT_S",
    "FLASHML_RUN_ID",
    "FLASHML_SETUP_T0",
    "FLASHML_TOXIPROXY_IMAGE",
    "FLASHML_TOXIPROXY_PORT",
    "FLASHML_WARM_FD",
    "FLASHML_WARM_MODULES",
    "FLASHML_WARM_STAYS",
    "FLASHML_WARM_STORE",
}


class Recorder(Mapping[str, str]):
    """An empty environment that remembers what it was asked for."""

    def __init__(self) -> None:
        self.asked: set[str] = set()

    def __getitem__(self, name: str) -> str:
        self.asked.add(name)
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def section(title: str) -> dict[str, str]:
    """Return the lines of a table of the configuration page by their variable."""
    page = (DOCS / "configuration.md").read_text()
    lines = page.split(f"## {title}\n")[1].split("\n## ")[0].splitlines()
    return {VARIABLE.findall(line)[0]: line for line in lines if line.startswith("| `")}


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    spec = importlib.util.spec_from_file_location("site_tables", DOCS / "site_tables.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_lists_the_settings_of_the_services_with_their_defaults() -> None:
    env = Recorder()
    coordinator = CoordinatorSettings.from_env(env)
    read = (coordinator, coordinator.keeping, coordinator.access, WorkerSettings.from_env(env))
    token_source(env)
    listed = section("Coordinator and worker")
    assert set(listed) == env.asked
    values = {
        str(value).removeprefix(f"{Path.cwd()}/")
        for settings in read
        for value in (getattr(settings, name) for name in settings.__slots__)
    }
    for name, line in listed.items():
        default = line.split(" | ")[1].strip("`")
        number = f"{float(default)}" if default.isdigit() and name.endswith("_S") else default
        number = {"none": "{}", "on": "True"}.get(default, number)
        unset = default in {"none", "off"} or name == "FLASHML_NODE_ID"
        assert unset or values & {number, default}, name


def test_every_variable_of_the_code_is_on_the_page_or_internal() -> None:
    places = ["flashruntime", "chaos", "benchmarks", "docker", "compose.yaml", "Makefile"]
    files = [
        path
        for place in places
        for path in ([ROOT / place] if (ROOT / place).is_file() else (ROOT / place).rglob("*"))
        if path.is_file() and (path.suffix in {".py", ".sh", ".yaml"} or path.name == "Makefile")
    ]
    used = {
        name.rstrip("_")
        for path in files
        for name in VARIABLE.findall(path.read_text("utf-8"))
        if not name.startswith("FLASHML_BENCH_")
    }
    told = set(VARIABLE.findall((DOCS / "configuration.md").read_text()))
    assert used - INTERNAL == told
    assert used >= INTERNAL


def test_generated_tables_name_what_there_is(tables: ModuleType) -> None:
    chaos = tables.filled((DOCS / "chaos.md").read_text())
    api = tables.filled((DOCS / "coordinator-api.md").read_text())
    for word in ("`zombie_partition`", "`kill_in_write_window`", "`machine_clean`"):
        assert word in chaos
    assert "| `POST /v1alpha1/leases/claim` | Ask for a task" in api
    for line in (chaos + api).splitlines():
        if line.startswith("| `"):
            assert not line.endswith("|  |"), f"nothing is said about it: {line}"
    assert "<!-- table" not in chaos + api


def test_a_table_that_there_is_not_is_an_error(tables: ModuleType) -> None:
    with pytest.raises(KeyError, match="weather"):
        tables.filled("<!-- table: weather -->")


@pytest.mark.parametrize("path", sorted((DOCS / "assets").iterdir()), ids=lambda path: path.name)
def test_our_own_assets_ask_for_nothing_from_outside(path: Path) -> None:
    assert not re.search(r"https?:|@import|url\(", path.read_text())


def test_the_site_takes_no_font_from_outside() -> None:
    config = (DOCS / "mkdocs.yml").read_text()
    assert "\n  font: false\n" in config
    assert "://" not in config
