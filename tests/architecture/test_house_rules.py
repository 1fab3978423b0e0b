"""The rules of the house that a machine can check."""

import ast
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PRODUCTS = ("flashruntime", "chaos", "benchmarks", "docs")
MODULES = sorted(path for product in PRODUCTS for path in (ROOT / product).rglob("*.py"))
TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in MODULES}
MAX_MODULE_LINES = 350
MAX_FUNCTION_LINES = 50
MAX_DOCSTRING_LINES = {ast.Module: 8, ast.FunctionDef: 10, ast.AsyncFunctionDef: 10}


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_modules_and_functions_stay_small() -> None:
    too_long = []
    for path, tree in TREES.items():
        lines = len(path.read_text(encoding="utf-8").splitlines())
        if lines > MAX_MODULE_LINES:
            too_long.append(f"{name_of(path)} has {lines} lines")
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or 0) - node.lineno + 1
                if lines > MAX_FUNCTION_LINES:
                    too_long.append(f"{name_of(path)}: {node.name} has {lines} lines")
    assert too_long == []


def test_docstrings_stay_short() -> None:
    too_long = []
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef):
                lines = len((ast.get_docstring(node) or "").splitlines())
                if lines > MAX_DOCSTRING_LINES[type(node)]:
                    too_long.append(f"{name_of(path)}: {getattr(node, 'name', 'module')}")
    assert [each for each in too_long if "/errors.py" not in each] == []


def test_the_docker_folder_holds_no_python() -> None:
    """`import docker` must never find a package of ours in front of the SDK."""
    assert list((ROOT / "docker").rglob("*.py")) == []


def test_tests_are_no_packages() -> None:
    """A `tests/chaos/__init__.py` would make `import chaos` resolve to the tests."""
    assert list((ROOT / "tests").rglob("__init__.py")) == []


def test_only_flashruntime_goes_into_the_wheel() -> None:
    metadata = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert metadata["tool"]["setuptools"]["packages"]["find"]["include"] == ["flashruntime*"]


def test_only_config_reads_the_environment_of_a_service() -> None:
    """Everything below is built from values; the launcher and in-script helper have their own."""
    readers = []
    for path in MODULES:
        if path.parts[-2] in {"service", "routes", "worker", "leases", "recovery", "checkpoint"}:
            text = path.read_text(encoding="utf-8")
            if "os.environ" in text or "getenv" in text:
                readers.append(name_of(path))
    assert readers == []
