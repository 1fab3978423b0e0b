"""Which modules a script is going to import that an interpreter may import for it beforehand."""

import ast
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# Big, and nothing in them outlives a fork badly: no threads, no CUDA until it is used.
PRELOADED = frozenset({
    "accelerate", "datasets", "flashruntime", "joblib", "lightgbm", "matplotlib", "networkx",
    "numpy", "pandas", "PIL", "pydantic", "safetensors", "scipy", "sklearn", "statsmodels",
    "sympy", "tokenizers", "torch", "torchaudio", "torchvision", "transformers", "xgboost",
})  # fmt: skip
STAND_IN = "flashml_script"
MAX_FILES = 64
MAX_FILE_BYTES = 1024 * 1024
# The first optimizer or DistributedDataParallel imports torch._dynamo: most of what torch loads.
_DYNAMO = "torch._dynamo"
_TRAINING = re.compile(rb"\boptim\b|\bDistributedDataParallel\b|\bflashruntime\.torch\b")
_PLAIN_OPTIONS = {"-u", "-B", "-O", "-OO", "-q"}


@dataclass(frozen=True, slots=True)
class Script:
    """A Python command: `head` is all of it up to the script or module, which is `name`."""

    head: tuple[str, ...]
    name: str
    is_module: bool

    @property
    def stand_in(self) -> list[str]:
        """Return the command that starts an interpreter for it, and by itself runs nothing else.

        A script has another path in each attempt; a module has the same name.
        """
        return list(self.head) if self.is_module else [*self.head[:-1], "-m", STAND_IN]

    def directory(self, cwd: Path) -> Path:
        """Return what the interpreter will put first on its path."""
        return cwd if self.is_module else (cwd / self.name).resolve().parent

    def file(self, cwd: Path) -> Path:
        """Return where its code is, if it is in the working directory."""
        if not self.is_module:
            return cwd / self.name
        place = cwd.joinpath(*self.name.split("."))
        return place / "__main__.py" if place.is_dir() else place.with_suffix(".py")


def script_of(argv: tuple[str, ...]) -> Script | None:
    """Return the script of `python [-u ...] script.py ...` or `python -m module ...`."""
    if not Path(argv[0]).name.startswith("python"):
        return None
    for place, word in enumerate(argv[1:], 1):
        if word == "-m" and place + 1 < len(argv):
            return Script(argv[: place + 2], argv[place + 1], is_module=True)
        if word.endswith(".py") and not word.startswith("-"):
            return Script(argv[: place + 1], word, is_module=False)
        if word not in _PLAIN_OPTIONS:
            return None
    return None


def modules_of(script: Script, cwd: Path, *, within: bool = False) -> list[str]:
    """Return the imports to do beforehand as `module:name,name`, in the script's order.

    Followed are the imports at the top level of the script and of modules that lie beside it;
    those themselves are never among the results. With `within`, imports in functions count too.
    """
    home = script.directory(cwd)
    todo, seen = deque([script.file(cwd)]), set[Path]()
    found: dict[str, dict[str, None]] = {}
    trains = False
    while todo and len(seen) < MAX_FILES:
        path = todo.popleft()
        if path in seen:
            continue
        seen.add(path)
        source = _source(path)
        trains = trains or _TRAINING.search(source) is not None
        for module, names in _imports(source, within):
            local = _local(home, module.partition(".")[0])
            if local is not None:
                todo += [_file(home, module), local]
            elif module.partition(".")[0] in PRELOADED:
                found.setdefault(module, {}).update(dict.fromkeys(names))
    if trains and any(module.startswith(("torch", "flashruntime.torch")) for module in found):
        found.setdefault(_DYNAMO, {})
    return [f"{module}:{','.join(names)}" for module, names in found.items()]


def _source(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAX_FILE_BYTES)
    except OSError:
        return b""


def _imports(source: bytes, within: bool) -> Iterator[tuple[str, list[str]]]:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    todo: deque[ast.AST] = deque(tree.body)
    while todo:
        node = todo.popleft()
        if isinstance(node, ast.Import):
            yield from ((name.name, []) for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module, [name.name for name in node.names if name.name != "*"]
        elif within or isinstance(node, ast.Try | ast.If | ast.With):
            todo.extend(ast.iter_child_nodes(node))


def _local(home: Path, name: str) -> Path | None:
    """The file of a module or package beside the script."""
    places = (home / f"{name}.py", home / name / "__init__.py")
    return next((place for place in places if place.is_file()), None)


def _file(home: Path, module: str) -> Path:
    return home.joinpath(*module.split(".")).with_suffix(".py")


def names_beside(home: Path) -> set[str]:
    """Return the names of the modules that a directory would provide."""
    try:
        entries = list(home.iterdir())
    except OSError:
        return set()
    files = {entry.name.partition(".")[0] for entry in entries if entry.suffix in {".py", ".so"}}
    packages = {entry.name for entry in entries if (entry / "__init__.py").is_file()}
    return files | packages
