"""Interpreters that are ready before a script is known, as a worker keeps one."""

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest

from flashruntime.launch import warm
from flashruntime.launch.environment import child_environment
from flashruntime.launch.processes import descendants
from flashruntime.launch.spec import LaunchSpec, WarmStart
from flashruntime.worker import warmth as worker_warmth
from flashruntime.worker.warmth import Warmth, warmth_of
from tests.unit.launch.test_launch_warm import IS_WARM, Site, finish

pytestmark = pytest.mark.integration

IMPORTS = ("joblib:",)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    yield Site(tmp_path)
    warm.retire_all()


def spec(site: Site, name: str, code: str = IS_WARM, **env: str) -> LaunchSpec:
    made = site.spec({name: code}, name, **env)
    return replace(made, warm=WarmStart(made.argv, wait=False, imports=IMPORTS))


def prepare(made: LaunchSpec) -> None:
    """Make an interpreter and wait until it is ready."""
    warm.prepare(made)
    assert made.warm is not None
    waiting = replace(made, warm=replace(made.warm, wait=True))
    found, settled = warm.find(waiting), Event()
    assert found is not None
    found.when_settled(settled.set)
    assert settled.wait(30)


def environs_below(site: Site) -> list[bytes]:
    """Return with which variables the interpreters of a site were started."""
    found = []
    for pid in descendants(os.getpid()):
        with suppress(OSError):
            found.append(Path(f"/proc/{pid}/environ").read_bytes())
    return [environ for environ in found if str(site.modules).encode() in environ]


def is_warm(made: LaunchSpec) -> bool:
    return finish(made)[1].splitlines()[-1] == "True"


def test_one_interpreter_serves_scripts_of_any_name(site: Site) -> None:
    prepare(spec(site, "first.py"))
    assert is_warm(spec(site, "other.py"))
    assert is_warm(spec(site, "train.py", FLASHML_JOB_ID="job", CUDA_VISIBLE_DEVICES="1"))


def test_an_interpreter_that_stays_is_never_given_a_variable_of_a_job(site: Site) -> None:
    """What a process was started with, others of its user can read for as long as it lives."""
    code = IS_WARM + "print(os.environ['SECRET'])\nprint(joblib.imported_by != os.getpid())"
    for secret in ("of-one-job", "of-another"):
        made = spec(site, "train.py", code, SECRET=secret)
        assert made.warm is not None
        late = replace(made, warm=replace(made.warm, late=frozenset({"SECRET"}), prepare=True))
        prepare(late)
        assert finish(late)[1].splitlines()[-2:] == [secret, "True"]
        kept = environs_below(site)
        assert kept
        assert not any(secret.encode() in environ for environ in kept)


def test_without_that_a_variable_is_part_of_what_an_interpreter_is_for(site: Site) -> None:
    prepare(spec(site, "first.py", SECRET="of one job"))
    assert not is_warm(spec(site, "first.py"))
    assert not is_warm(spec(site, "first.py", SECRET="of another"))


def test_a_job_finds_nothing_of_one_before_it(site: Site) -> None:
    """Neither its variables nor its modules, files, directory or what it did to shared ones."""
    prepare(spec(site, "train.py"))
    leaves = """
        import os, sys, joblib, helper
        joblib.left = sys.left = os.left = "left behind"
        os.environ["LEFT"] = "behind"
        os.putenv("LEFT", "behind")
        os.umask(0o777); os.chdir("/")
        sys.path.insert(0, "/left"); sys.modules["left"] = helper
        open("/dev/null"); print("done")
    """
    first = site.spec({"train.py": leaves, "helper.py": ""}, "train.py", FLASHML_OUTPUT_DIR="/one")
    first = replace(first, warm=WarmStart(first.argv, wait=False, imports=IMPORTS))
    assert finish(first)[1].splitlines()[-1] == "done"
    look = """
        import os, sys, joblib
        print([hasattr(each, "left") for each in (joblib, sys, os)], "LEFT" in os.environ,
              os.environ.get("FLASHML_OUTPUT_DIR"), "/left" in sys.path, "left" in sys.modules,
              "helper" in sys.modules, os.umask(0) == 0o777, os.getcwd() == sys.path[0],
              len(os.listdir("/proc/self/fd")))
        print(joblib.imported_by != os.getpid())
    """
    log = finish(spec(site, "train.py", look))[1].splitlines()
    expected = "[False, False, False] False None False False False False True 4"
    assert log[-2:] == [expected, "True"]


def test_an_interpreter_with_named_imports_does_not_idle_out(site: Site) -> None:
    made = spec(site, "train.py", "import os; print(os.environ.get('FLASHML_WARM_STAYS'))")
    prepare(made)
    assert finish(made)[1].splitlines()[-1] == "None"
    kept = environs_below(site)
    assert kept
    assert all(b"FLASHML_WARM_STAYS=1" in environ for environ in kept)


def test_only_what_imports_pytorch_is_forked_from_what_has_it(tmp_path: Path) -> None:
    def start(code: str, *argv: str, **job: str) -> WarmStart | None:
        (tmp_path / "train.py").write_text(code)
        return Warmth({}).start_of(argv or ("python3", "train.py"), tmp_path, job)

    assert start("print(1)") is None
    assert start("import torch", "sh", "-c", "true") is None
    trains = start("import flashruntime.torch as ft")
    assert trains is not None
    assert trains.imports == worker_warmth.IMPORTS
    plain = start("import numpy")
    assert plain is not None
    assert plain.imports == ()
    assert start("import torch", OMP_NUM_THREADS="1") is None
    assert start("import torch", TORCHDYNAMO_VERBOSE="1") is None
    assert start("import torch", PYTHONPATH="/x") is None
    module = start("import torch", "python3", "-m", "train")
    assert module is not None
    assert module.imports == ()


def test_a_worker_keeps_no_interpreter_where_told_so_or_where_memory_is_short(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert warmth_of({}, is_on=False) is None
    monkeypatch.setattr(worker_warmth.memory, "limit_bytes", lambda: 512 * 1024**2)
    assert warmth_of({}, is_on=True) is None
    monkeypatch.setattr(worker_warmth.memory, "limit_bytes", lambda: 2 * 1024**3)
    assert warmth_of({}, is_on=True) is not None


@pytest.fixture
def warmth(site: Site, monkeypatch: pytest.MonkeyPatch) -> Warmth:
    """That of a worker on a host where joblib and networkx are what takes long."""
    (site.root / "bin").mkdir()
    (site.root / "bin/python3").symlink_to(sys.executable)
    site.module("networkx", "import colorsys")
    monkeypatch.setattr(worker_warmth, "find_spec", lambda _: True)
    monkeypatch.setattr(worker_warmth, "_TORCH", ("joblib",))
    environ = {"PATH": f"{site.root}/bin:{os.environ['PATH']}", "PYTHONPATH": str(site.modules)}
    return Warmth(environ, imports=IMPORTS)


def attempt(site: Site, warmth: Warmth, code: str, name: str = "whatever.py") -> LaunchSpec:
    made = spec(site, name, code)
    env = child_environment(warmth._environ, {}, {"FLASHML_JOB_ID": "j"})
    argv = ("python3", name)
    return replace(made, argv=argv, env=env, warm=warmth.start_of(argv, made.cwd, {}))


def await_ready(warmth: Warmth, imports: tuple[str, ...]) -> None:
    for _ in range(600):
        found = warm.find(warmth._spec(imports))
        if warmth._ready == imports and found is not None:
            return
        Event().wait(0.02)
    raise AssertionError(warmth._ready)


def test_a_worker_prepares_for_scripts_that_it_does_not_know(site: Site, warmth: Warmth) -> None:
    """What it prepares fits what it launches later, whatever the script is called."""
    warmth.prepare()
    await_ready(warmth, IMPORTS)
    assert is_warm(attempt(site, warmth, IS_WARM))


def test_a_worker_learns_what_scripts_import_elsewhere(site: Site, warmth: Warmth) -> None:
    """The interpreter that it had serves until the new one is ready, and ends then."""
    warmth.prepare()
    await_ready(warmth, IMPORTS)
    warmth.learn(["networkx:", "os:", "joblib:", "subprocess:Popen"])
    both = (*IMPORTS, "networkx:")
    assert warmth._ready in {IMPORTS, both}
    await_ready(warmth, both)
    assert warm.find(warmth._spec(IMPORTS)) is None
    code = "import joblib, sys\nprint('colorsys' in sys.modules, 'subprocess' in sys.modules)\n"
    log = finish(attempt(site, warmth, code + IS_WARM))[1].splitlines()
    assert log[-2:] == ["True False", "True"], "only packages that may be imported beforehand"


def test_what_cannot_be_imported_beforehand_is_left_out(site: Site, warmth: Warmth) -> None:
    site.module("statsmodels", "raise RuntimeError('never')")
    warmth.prepare()
    await_ready(warmth, IMPORTS)
    warmth.learn(["statsmodels:"])
    for _ in range(600):
        if warmth._refused:
            break
        Event().wait(0.02)
    assert warmth._refused == {"statsmodels:"}
    assert is_warm(attempt(site, warmth, IS_WARM))


def test_what_a_script_imports_anywhere_is_told(tmp_path: Path) -> None:
    code = "import torch, os\ndef f():\n    from sklearn.datasets import load_digits as d\n"
    (tmp_path / "train.py").write_text(code + "import größe\nfrom numpy import größe\n")
    told = worker_warmth.imported_by(("python3", "train.py"), tmp_path)
    assert told == ["torch:", "sklearn.datasets:load_digits"]
    assert worker_warmth.imported_by(("sh", "-c", "true"), tmp_path) == []
