"""The harness knows the system under test through one adapter; all else works for any system."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SYSTEM = "flashruntime"
ADAPTER = "chaos/targets/runtime.py"
PAYLOADS = "chaos/payloads/"
"""Scripts that run inside the system under test, as its users' code does."""


def imported(tree: ast.AST) -> Iterator[str]:
    """Name every module that is imported anywhere, also by `import_module` and `__import__`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else node.func
            name = called.id if isinstance(called, ast.Name) else called
            if name in {"import_module", "__import__"}:
                yield str(node.args[0].value)


def knows_the_system(tree: ast.AST) -> bool:
    return any(name.partition(".")[0] == SYSTEM for name in imported(tree))


@pytest.mark.parametrize(
    ("text", "knows"),
    [
        ("import flashruntime.client as c", True),
        ("from flashruntime import errors", True),
        ("def late():\n    from flashruntime.protocol import jobs", True),
        ("importlib.import_module('flashruntime.sdk')", True),
        ("__import__('flashruntime')", True),
        ("import flashruntime_tools\nimport chaos.model", False),
        ("NAME = 'flashruntime'", False),
    ],
)
def test_every_way_to_import_the_system_is_noticed(text: str, knows: bool) -> None:
    assert knows_the_system(ast.parse(text)) is knows


def test_of_the_harness_one_file_knows_the_system_under_test() -> None:
    """Whatever is not the adapter or a payload would be of no use for another system."""
    paths = sorted((ROOT / "chaos").rglob("*.py"))
    knowing = [
        str(path.relative_to(ROOT))
        for path in paths
        if knows_the_system(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert [name for name in knowing if not name.startswith(PAYLOADS)] == [ADAPTER]


def test_the_second_system_knows_nothing_of_the_first() -> None:
    """Its adapter and tests stand on the harness alone."""
    target = sorted((ROOT / "tests/targets/redis_queue").glob("*.py"))
    assert target, "the second system is where it was"
    trees = {path.name: ast.parse(path.read_text(encoding="utf-8")) for path in target}
    assert [name for name, tree in trees.items() if knows_the_system(tree)] == []
    from_core = {name for tree in trees.values() for name in imported(tree)}
    assert "chaos.targets.runtime" not in from_core
    assert "chaos.targets.stack" not in from_core
