"""Attempts that are forked from a warm interpreter: nothing tells them from fresh ones."""

import json
import os
import select
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from flashruntime.launch import warm
from flashruntime.launch.environment import HOOK_DIR, child_environment
from flashruntime.launch.local import LocalLauncher, LocalProcess
from flashruntime.launch.processes import descendants
from flashruntime.launch.spec import LaunchSpec, WarmStart
from flashruntime.launch.stacks import DUMP_SIGNAL, DUMP_VARIABLE
from flashruntime.protocol.failures import EndedBy, Evidence

pytestmark = pytest.mark.integration

PATIENCE_S = 60.0
HEAVY = """
import os, sys
sys.stderr.write("heavy says hello\\n")
imported_by = os.getpid()
"""


class Site:
    """A directory of modules outside of the source, and attempts that can import them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.modules = root / "site"
        self.modules.mkdir()
        self.module("joblib", HEAVY)
        self.count = 0

    def module(self, name: str, code: str) -> None:
        (self.modules / f"{name}.py").write_text(textwrap.dedent(code))

    def spec(
        self,
        files: dict[str, str],
        *argv: str,
        start: WarmStart | None = None,
        ranks: int | None = None,
        **env: str,
    ) -> LaunchSpec:
        self.count += 1
        cwd = self.root / f"attempt-{self.count}"
        for name, code in files.items():
            (cwd / name).parent.mkdir(parents=True, exist_ok=True)
            (cwd / name).write_text(textwrap.dedent(code))
        command = (sys.executable, *argv)
        job = {"PYTHONPATH": str(self.modules), "PATH": os.environ["PATH"], **env}
        error_file = cwd / "error.json"
        return LaunchSpec(
            argv=command,
            cwd=cwd,
            env=child_environment({}, job, {"FLASHML_ERROR_FILE": str(error_file)}),
            log_path=cwd / "launcher.log",
            error_file=error_file,
            warm=start or WarmStart(command, ranks),
        )

    def run(
        self, code: str, *args: str, ranks: int | None = None, **env: str
    ) -> tuple[Evidence, str]:
        spec = self.spec({"train.py": code}, "train.py", *args, ranks=ranks, **env)
        return finish(spec)


def finish(spec: LaunchSpec) -> tuple[Evidence, str]:
    evidence = LocalLauncher().launch(spec).wait(PATIENCE_S)
    assert evidence is not None
    return evidence, spec.log_path.read_text()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    yield Site(tmp_path)
    warm.retire_all()


IS_WARM = "import os, joblib; print(joblib.imported_by != os.getpid())\n"


def test_a_script_is_forked_from_an_interpreter_with_its_modules(site: Site) -> None:
    outputs = [site.run(IS_WARM, str(n))[1] for n in range(2)]
    assert outputs == ["heavy says hello\nTrue\n"] * 2, "what the import printed is printed too"


LOOK = """
import json, os, signal, sys, traceback
def stack():
    return [(frame.filename, frame.name) for frame in traceback.extract_stack()][:-1]
print(json.dumps({
    "argv": sys.argv, "orig": sys.orig_argv, "path": sys.path, "flags": str(sys.flags),
    "main": sorted(globals()), "file": __file__, "name": __name__,
    "spec": getattr(__spec__, "name", None),
    "loader": type(__loader__).__name__, "stack": stack(), "cwd": os.getcwd(),
    "env": {k: v for k, v in os.environ.items() if k != "FLASHML_MAIN_PID"},
    "main_pid": os.environ["FLASHML_MAIN_PID"] == str(os.getpid()),
    "signals": {s.name: str(signal.getsignal(s)) for s in signal.Signals},
    "mask": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
    "files": sorted(os.listdir("/proc/self/fd")), "session": os.getsid(0) == os.getpid(),
    "out": [sys.stdout.encoding, sys.stdout.errors, sys.stdout.line_buffering,
            sys.stdout.write_through, sys.stderr.line_buffering, sys.stdin.read()],
    "modules": sorted(m for m in sys.modules if "keeper" in m or "warm" in m),
    "runpy": getattr(sys.modules.get("runpy"), "__spec__", None) is not None,
}))
"""


@pytest.mark.parametrize(
    ("name", "argv"),
    [
        ("train.py", ("train.py", "--lr", "0.1")),
        ("train.py", ("-u", "./train.py")),
        ("src/train.py", ("src/train.py", "x")),
        ("pkg/train.py", ("-m", "pkg.train", "x")),
    ],
)
def test_a_process_sees_what_a_fresh_one_sees(site: Site, name: str, argv: tuple[str, ...]) -> None:
    seen = []
    for is_warm in (True, False):
        spec = site.spec({name: "import joblib\n" + LOOK}, *argv, LANG="C.UTF-8", A="1")
        start = spec.warm if is_warm else None
        evidence, log = finish(
            LaunchSpec(spec.argv, spec.cwd, spec.env, spec.log_path, spec.error_file, start)
        )
        assert evidence.exit_code == 0, log
        seen.append(json.loads(log.splitlines()[1].replace(str(spec.cwd), "CWD")))
    assert seen[0] == seen[1]


ENDS = {
    "sys.exit(3)": (EndedBy.EXIT, 3, None, None),
    "sys.exit('bye')": (EndedBy.EXIT, 1, None, None),
    "sys.exit()": (EndedBy.EXIT, 0, None, None),
    "{}['acc']": (EndedBy.EXIT, 1, None, "KeyError"),
    "raise KeyboardInterrupt": (EndedBy.SIGNAL, None, signal.SIGINT, None),
    "os.kill(os.getpid(), 11)": (EndedBy.SIGNAL, None, signal.SIGSEGV, None),
    "os._exit(7)": (EndedBy.EXIT, 7, None, None),
    "if": (EndedBy.EXIT, 1, None, "SyntaxError"),
}


@pytest.mark.parametrize("code", ENDS)
def test_a_process_ends_as_a_fresh_one_does(site: Site, code: str) -> None:
    texts = []
    for is_warm in (True, False):
        spec = site.spec({"train.py": f"import os, sys\n{code}"}, "train.py")
        start = spec.warm if is_warm else None
        evidence, log = finish(
            LaunchSpec(spec.argv, spec.cwd, spec.env, spec.log_path, spec.error_file, start)
        )
        ended = evidence.ended_by, evidence.exit_code, evidence.signal, evidence.error_type
        assert ended == ENDS[code]
        texts.append(log.replace(str(spec.cwd), "CWD"))
    assert texts[0] == texts[1], "no frame of ours in a traceback"


def test_a_missing_script_is_told_as_python_tells_it(site: Site) -> None:
    evidence, log = finish(site.spec({"other.py": ""}, "train.py"))
    assert evidence.exit_code == 2
    assert "can't open file" in log


def test_exit_handlers_and_threads_run_to_their_end(site: Site) -> None:
    _, log = site.run(
        """
        import atexit, threading, time
        atexit.register(print, "exit handler")
        gate = threading.Event()
        def work():
            gate.wait(); print("thread")
        threading.Thread(target=work).start()
        threading.Timer(0.05, gate.set).start()
        print("main")
        """
    )
    assert log == "main\nthread\nexit handler\n"


HELD = """
class Held:
    def __del__(self, write=os.write): write(1, b"taken apart")
held = Held()
"""
LEAVES_OPEN = """
import os, sys, joblib
class Last:
    def __del__(self, write=os.write): write(1, b"last")
last, mine, joblib.theirs = Last(), open("mine", "w"), open("theirs", "w")
mine.write("kept"); joblib.theirs.write("kept too")
sys.exit(7)
"""


def test_what_a_script_leaves_open_ends_with_it_and_its_interpreter_is_left_alone(
    site: Site,
) -> None:
    site.module("joblib", HEAVY + HELD)
    evidence, log = site.run(LEAVES_OPEN)
    assert (evidence.exit_code, log) == (7, "heavy says hello\nlast")
    files = site.root / "attempt-1"
    assert [(files / name).read_text() for name in ("mine", "theirs")] == ["kept", "kept too"]


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes_of_multiprocessing_find_the_script(site: Site, method: str) -> None:
    evidence, log = site.run(
        f"""
        import multiprocessing, sys
        def double(x): return 2 * x + len(sys.argv)
        if __name__ == "__main__":
            context = multiprocessing.get_context({method!r})
            with context.Pool(2) as pool: print(pool.map(double, [1, 2, 3]))
        """,
        "an argument",
    )
    assert evidence.exit_code == 0, log
    assert log == "[4, 6, 8]\n"


def test_multiprocessing_knows_where_the_script_was_started(site: Site) -> None:
    site.module("joblib", "import multiprocessing.process")
    code = "import joblib, os, multiprocessing.process as p; print(p.ORIGINAL_DIR == os.getcwd())"
    assert site.run(code)[1] == "True\n"


def test_random_numbers_differ_between_forks(site: Site) -> None:
    code = "import random, uuid, multiprocessing as m, joblib\nprint(random.random(), uuid.uuid4(),"
    code += "m.current_process().authkey.hex())"
    site.module("joblib", "import random, uuid, multiprocessing")
    first, second = (site.run(code)[1].split() for _ in range(2))
    assert len(first) == 3
    assert all(one != other for one, other in zip(first, second, strict=True))


def test_a_hash_seed_is_respected(site: Site) -> None:
    code = "import joblib; print(hash('a'))"
    seeds = [site.run(code, PYTHONHASHSEED=seed)[1] for seed in ("1", "2", "1")]
    assert seeds[0] == seeds[2] != seeds[1]


def test_a_module_beside_the_script_is_the_one_that_is_imported(site: Site) -> None:
    site.module("joblib", "import colorsys")
    warmed = {"train.py": "import joblib, colorsys; print(colorsys.__file__)"}
    finish(site.spec(warmed, "train.py"))
    spec = site.spec({**warmed, "colorsys.py": ""}, "train.py")
    assert finish(spec)[1].strip() == str(spec.cwd / "colorsys.py")


def test_local_modules_are_followed_and_never_imported_beforehand(site: Site) -> None:
    files = {"train.py": "import model", "model.py": IS_WARM + "print(__file__)"}
    spec = site.spec(files, "train.py")
    assert finish(spec)[1].splitlines()[1:] == ["True", str(spec.cwd / "model.py")]


@pytest.mark.parametrize(
    "broken",
    [
        "raise RuntimeError('not twice')",
        "import threading, time\n"
        "    threading.Thread(target=time.sleep, args=(9,), daemon=True).start()",
        "import os; os._exit(1)",
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    ],
)
def test_a_script_with_modules_that_cannot_be_forked_starts_cold(site: Site, broken: str) -> None:
    """The module breaks only where it is imported beforehand."""
    site.module("joblib", f"import sys\nif not sys.argv[0].endswith('.py'):\n    {broken}")
    assert site.run("import joblib; print('cold')")[1] == "cold\n"


def test_a_module_that_is_not_there_is_the_script_s_own_affair(site: Site) -> None:
    code = "try: import lightgbm\nexcept ImportError: print('none')\n" + IS_WARM
    assert site.run(code)[1].splitlines()[-2:] == ["none", "True"]


def test_a_python_that_an_import_starts_is_an_ordinary_one(site: Site) -> None:
    site.module(
        "joblib",
        HEAVY
        + """
import subprocess
command = [sys.executable, "-c", "import os; print('FLASHML_WARM_FD' in os.environ)"]
told = subprocess.run(command, capture_output=True, text=True).stdout.strip()
""",
    )
    assert site.run(IS_WARM + "print(joblib.told)")[1].splitlines()[-2:] == ["True", "False"]


def test_attempts_start_cold_when_the_interpreter_has_died(site: Site) -> None:
    site.run(IS_WARM)
    for pid in descendants(os.getpid()):
        if b"flashml_script" in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)
    assert site.run(IS_WARM)[1].splitlines()[-1] == "False"


def fifo_at(site: Site) -> Path:
    path = site.root / f"ready-{site.count}"
    os.mkfifo(path)
    return path


def keeper_of(process: LocalProcess) -> int:
    """Wait for the report of the process, and return its keeper."""
    while process.keeper_pid is None and process.wait(0.005) is None:
        pass
    assert process.keeper_pid is not None
    return process.keeper_pid


def start_waiting(site: Site, before: str = "") -> tuple[LocalProcess, list[int]]:
    """Start a script with a daemon of its own; return its process ids when it is there."""
    fifo = fifo_at(site)
    code = f"""
    import os, signal, subprocess, sys
    {before}
    child = subprocess.Popen(["sleep", "3600"], start_new_session=True)
    with open({str(fifo)!r}, "w") as file: file.write(f"{{os.getpid()}} {{child.pid}}")
    while True: signal.pause()
    """
    process = LocalLauncher().launch(site.spec({"train.py": code}, "train.py"))
    return process, [int(pid) for pid in fifo.read_text().split()]


def await_gone(pids: list[int]) -> None:
    for pid in pids:
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        assert select.select([handle], [], [], PATIENCE_S)[0], f"process {pid} lives on"
        os.close(handle)


def test_stop_ends_the_tree_of_a_fork(site: Site) -> None:
    process, pids = start_waiting(site, "signal.signal(signal.SIGTERM, signal.SIG_IGN)")
    process.stop(0.1)
    evidence = process.wait(PATIENCE_S)
    assert evidence is not None
    assert (evidence.ended_by, evidence.signal) == (EndedBy.STOPPED, signal.SIGKILL)
    await_gone(pids)


def test_sigkill_of_its_keeper_ends_the_tree_of_a_fork(site: Site) -> None:
    process, pids = start_waiting(site)
    os.kill(keeper_of(process), signal.SIGKILL)
    evidence = process.wait(PATIENCE_S)
    assert evidence is not None
    assert evidence.ended_by is EndedBy.WORKER_ERROR
    await_gone(pids)


def test_a_fork_that_hangs_prints_its_stacks(site: Site) -> None:
    fifo = fifo_at(site)
    code = f"import signal\nopen({str(fifo)!r}, 'w').close()\nwhile True: signal.pause()"
    spec = site.spec({"train.py": code}, "train.py", **{DUMP_VARIABLE: str(DUMP_SIGNAL)})
    process = LocalLauncher().launch(spec)
    fifo.read_text()
    keeper_of(process)
    assert process.dump_stacks() == 1
    while not spec.log_path.read_text().endswith("<module>\n") and process.wait(0.01) is None:
        pass
    process.stop(0.0)
    assert process.wait(PATIENCE_S) is not None
    assert f'{spec.cwd / "train.py"}", line' in spec.log_path.read_text()


def test_a_stop_while_modules_are_imported_is_obeyed_at_once(site: Site) -> None:
    fifo = fifo_at(site)
    site.module("joblib", f"open({str(fifo)!r}, 'w').close(); import time; time.sleep(3600)")
    process = LocalLauncher().launch(site.spec({"train.py": "import joblib"}, "train.py"))
    fifo.read_text()
    process.stop(PATIENCE_S)
    evidence = process.wait(PATIENCE_S)
    assert evidence is not None
    assert evidence.ended_by is EndedBy.STOPPED


AGENT = """
import os, sys
from pathlib import Path
from flashruntime.launch.local import LocalLauncher
from flashruntime.launch.spec import LaunchSpec, WarmStart
root, argv = Path(sys.argv[1]), (sys.executable, "train.py")
spec = LaunchSpec(argv, root, dict(os.environ), root / "log", None, WarmStart(argv))
LocalLauncher().launch(spec).wait()
"""


def test_sigkill_of_the_launching_process_leaves_no_process(site: Site) -> None:
    fifo = fifo_at(site)
    (site.root / "train.py").write_text(
        "import os, subprocess, time\n"
        "child = subprocess.Popen(['sleep', '3600'], start_new_session=True)\n"
        f"open({str(fifo)!r}, 'w').close()\n"
        "time.sleep(3600)"
    )
    paths = os.pathsep.join([str(HOOK_DIR), str(Path.cwd())])
    agent = subprocess.Popen(
        [sys.executable, "-c", AGENT, str(site.root)], env={**os.environ, "PYTHONPATH": paths}
    )
    fifo.read_text()
    below = descendants(agent.pid)
    agent.kill()
    agent.wait()
    assert len(below) >= 6, "server, keeper, interpreter, keeper, process and its daemon"
    await_gone(below)


RANK = "import os, sys, time; rank = int(os.environ['RANK'])\n"


def test_ranks_get_what_torchrun_gives_them(site: Site) -> None:
    _, log = site.run(
        RANK
        + "names = sys.argv[1].split(',')\n"
        + "sys.stdout.write(' '.join(f'{n}={os.environ[n]}' for n in names) + '\\n')",
        "RANK,LOCAL_RANK,WORLD_SIZE,MASTER_ADDR,OMP_NUM_THREADS,GROUP_RANK,TORCHELASTIC_RESTART_COUNT",
        ranks=2,
    )
    about = "WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 OMP_NUM_THREADS=1 GROUP_RANK=0"
    about += " TORCHELASTIC_RESTART_COUNT=0"
    assert sorted(log.splitlines()) == [f"RANK={n} LOCAL_RANK={n} {about}" for n in range(2)]


def test_the_rank_that_failed_first_is_the_cause_and_ends_the_others(site: Site) -> None:
    fifo = fifo_at(site)
    evidence, _ = site.run(
        RANK
        + f"""
        if rank == 1: open({str(fifo)!r}).read(); raise ValueError("num_heads")
        def leave(*_): raise RuntimeError("peer is gone")
        import signal; signal.signal(signal.SIGTERM, leave)
        open({str(fifo)!r}, "w").close()
        while True: signal.pause()
        """.replace("\n        ", "\n"),
        ranks=2,
    )
    found = evidence.ended_by, evidence.exit_code, evidence.error_type, evidence.message
    assert found == (EndedBy.EXIT, 1, "ValueError", "num_heads")


def test_a_rank_that_was_killed_is_the_cause_though_another_told_of_it_before_it_was_reaped(
    site: Site,
) -> None:
    fifo = fifo_at(site)
    evidence, _ = site.run(
        RANK
        + textwrap.dedent(
            f"""
            if rank == 0:
                open({str(fifo)!r}).read()
                os.kill(os.getpid(), 9)
            with open({str(fifo)!r}, "w"):
                try:
                    raise ConnectionResetError("by peer")
                except ConnectionResetError:
                    sys.excepthook(*sys.exc_info())
            while True: time.sleep(3600)
            """
        ),
        ranks=2,
    )
    assert (evidence.ended_by, evidence.signal) == (EndedBy.SIGNAL, 9)


def test_a_rank_that_was_killed_is_the_cause(site: Site) -> None:
    evidence, _ = site.run(
        RANK + "if rank == 0: os.kill(os.getpid(), 9)\nwhile True: time.sleep(3600)", ranks=2
    )
    assert (evidence.ended_by, evidence.signal) == (EndedBy.SIGNAL, 9)


@pytest.mark.parametrize(
    "argv", [("-c", "print(1)"), ("-I", "train.py"), ("train",), ("-X", "dev", "train.py")]
)
def test_other_commands_start_cold(site: Site, argv: tuple[str, ...]) -> None:
    assert warm.find(site.spec({"train.py": ""}, *argv)) is None


def test_a_wrapper_script_in_place_of_python_starts_cold(site: Site) -> None:
    wrapper = site.root / "python3"
    wrapper.write_text(f'#!/bin/sh\nexec {sys.executable} -I "$@"\n')
    wrapper.chmod(0o755)
    spec = site.spec({"train.py": ""}, "train.py", start=WarmStart((str(wrapper), "train.py")))
    assert warm.find(spec) is None
