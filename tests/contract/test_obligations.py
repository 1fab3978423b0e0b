"""Each obligation and each reported case has a test: `tests/obligations.json` maps their ids."""

import ast
import json
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAP = json.loads((ROOT / "tests" / "obligations.json").read_text(encoding="utf-8"))
IDS = [
    *(f"C{number}" for number in range(1, 16)),
    *(f"F{number}" for number in range(1, 16)),
    *(f"L{number}" for number in range(1, 21)),
    *(f"{number:03}" for number in range(1, 176, 2)),
]


@cache
def functions_in(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_every_id_is_mapped_and_no_other() -> None:
    assert list(MAP) == IDS


@pytest.mark.parametrize("name", IDS)
def test_an_obligation_has_tests_and_they_exist(name: str) -> None:
    entry = MAP[name]
    assert set(entry) == {"say", "tests"}
    assert entry["say"]
    assert entry["tests"]
    for test in entry["tests"]:
        path, _, function = test.partition("::")
        assert function.startswith("test_")
        assert function in functions_in(path), test
