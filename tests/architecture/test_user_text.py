"""L12: text of users is never evaluated, formatted or given to a shell."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
# What runs the user's own script, as an interpreter does, is not among them.
PARTS = ("cli", "leases", "protocol", "recovery", "sdk", "service", "worker")
MODULES = sorted(path for part in PARTS for path in (ROOT / "flashruntime" / part).rglob("*.py"))
EVALUATING = {"eval", "exec", "compile", "__import__"}
ATTRIBUTES = {"format_map", "system", "popen", "literal_eval"}


def offence(call: ast.Call) -> str | None:
    """Return what a call would do to text, None if nothing."""
    function = call.func
    if any(word.arg == "shell" for word in call.keywords):
        return "passes `shell`"
    if isinstance(function, ast.Name) and function.id in EVALUATING:
        return f"calls {function.id}"
    if not isinstance(function, ast.Attribute):
        return None
    if function.attr in ATTRIBUTES:
        return f"calls .{function.attr}"
    if function.attr == "format" and not isinstance(function.value, ast.Constant):
        named = function.value.id if isinstance(function.value, ast.Name) else ""
        own = named == "self" or named.isupper()
        return None if own else "formats what is no literal"
    loads = function.attr in {"load", "loads"} and isinstance(function.value, ast.Name)
    unsafe = loads and function.value.id in {"pickle", "marshal", "yaml"}
    return "loads code" if unsafe else None


def test_no_module_evaluates_or_formats_text_that_it_was_given() -> None:
    found = []
    for path in MODULES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
        found += [
            f"{path.relative_to(ROOT)}, line {call.lineno} {what}"
            for call in calls
            if (what := offence(call))
        ]
    assert found == []
