"""Makes a starting interpreter a warm one: it imports modules, and is forked for each attempt.

Called by the hook while `site` is imported: a fork has only to return from here, and the
interpreter goes on to its main program, as if it had just been started. That is a module of its
command line, or a script put in the place of one, below which there is no frame of ours either.
"""

import atexit
import ctypes
import functools
import gc
import io
import os
import sys
import warnings
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from types import ModuleType
from typing import Any

IDLE_S = 300.0
_CONTROL, _MODULES, _PROBE = "FLASHML_WARM_FD", "FLASHML_WARM_MODULES", "FLASHML_WARM_STORE"
_STAYS = "FLASHML_WARM_STAYS"
_TAKEN_APART = {"__main__", "builtins", "sys"}
_OLD_STORE = {"USE_LIBUV": "0", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}


def serve(before: set[str]) -> "Callable[[], None]":
    """Import, then serve; returns only in a fork that is to be the process of an attempt.

    `before` are the modules that a fresh interpreter has loaded too. What is returned is to be
    called last of all.
    """
    # A Python that an import starts is none of ours.
    control = int(os.environ.pop(_CONTROL))
    server_module = _load_server()
    kept: dict[str, ModuleType] = {}
    atexit.register(_spare, kept)
    for word in os.environ[_MODULES].split():
        _preload(*word.partition(":")[::2])
    said = _said_so_far()
    extra = _OLD_STORE if os.environ.get(_PROBE) and not _has_libuv() else {}
    _refuse_what_no_fork_survives()
    names = sorted({name.partition(".")[0] for name in set(sys.modules) - before})
    kept |= {name: each for name, each in sys.modules.items() if name not in _TAKEN_APART}
    _end_without_destructors(kept)
    idle_s = None if os.environ.get(_STAYS) else IDLE_S
    server = server_module.Server(control, in_place=True, idle_s=idle_s)
    gc.collect()
    gc.freeze()
    os.write(control, f"ready {' '.join(names)}\n".encode())
    request = server.serve()
    os.write(2, said)
    _become(request, extra)
    return functools.partial(_put_in_place, request["script"])


def _load_server() -> ModuleType:
    """Import the server beside this file, and leave no trace of that."""
    sys.path.insert(0, os.path.dirname(__file__))
    try:
        return __import__("keeper_server")
    finally:
        del sys.path[0]
        for name in ("keeper_server", "keeper", "processes"):
            sys.modules.pop(name, None)


def _preload(module: str, names: str) -> None:
    try:
        __import__(module, fromlist=[name for name in names.split(",") if name] or ["*"])
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise


def _said_so_far() -> bytes:
    """Return what the imports have printed, to be printed again by each process."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    return os.pread(1, os.fstat(1).st_size, 0)


def _has_libuv() -> bool:
    """Try in a fork, for a store starts threads."""

    def works() -> bool:
        distributed: Any = __import__("torch.distributed", fromlist=["TCPStore"])
        try:
            distributed.TCPStore(
                "127.0.0.1", 0, is_master=True, wait_for_workers=False, use_libuv=True
            )
        except RuntimeError as error:
            return "libuv" not in str(error)
        return True

    return _in_fork(works)


def _in_fork(action: Any) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if action() else 1)
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 1


def _refuse_what_no_fork_survives() -> None:
    """Refuse threads, but for those of a library that ends its own before a fork, and CUDA."""
    if _threads() > 1:
        _in_fork(lambda: True)
    if _threads() > 1:
        raise RuntimeError("a module that was imported has started a thread")
    cuda: Any = sys.modules.get("torch.cuda")
    if cuda is not None and cuda.is_initialized():
        raise RuntimeError("a module that was imported has initialised CUDA")


def _end_without_destructors(kept: object) -> None:
    """Let forks leave `kept` and the C++ libraries that are loaded as they are when they end.

    To take them apart would copy most of their memory. Libraries that are loaded later come to
    their own end before, and the exit code stays. Source: on_exit(3), fcloseall(3).
    """
    libc = ctypes.CDLL(None)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))
    if hasattr(libc, "on_exit") and hasattr(libc, "fcloseall"):
        libc.on_exit(libc._exit, None)
        libc.on_exit(libc.fcloseall, None)


def _spare(kept: dict[str, ModuleType]) -> None:
    """Take the modules that were imported beforehand out of the interpreter's end.

    Called after everything else that `atexit` calls. Files that such a module refers to would be
    flushed when it goes, so they are flushed now.
    """
    for each in gc.get_objects():
        if issubclass(type(each), io.IOBase):
            try:  # noqa: SIM105 (nothing is imported any more)
                each.flush()
            except Exception:  # noqa: BLE001, S110 (closed, or a class of the script's own)
                pass
    for name, module in kept.items():
        if sys.modules.get(name) is module:
            sys.modules[name] = None  # type: ignore[assignment]


def _threads() -> int:
    return len(os.listdir("/proc/self/task"))


def _become(request: dict[str, Any], extra: dict[str, str]) -> None:
    """Take over what an interpreter reads from its environment and command line."""
    import signal  # noqa: PLC0415 (loaded by then in any case)

    os.environ.clear()
    os.environ.update(extra | request["env_of_rank"])
    argv = request["argv"]
    sys.orig_argv[:] = argv
    sys.argv[1:] = argv[request["head"] :]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_IGN)
    numpy_random: Any = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        torch.default_generator.seed()
    processes: Any = sys.modules.get("multiprocessing.process")
    if processes is not None:
        # Spawned processes look there for what is relative.
        processes.ORIGINAL_DIR = os.getcwd()
        config = processes.current_process()._config
        config["authkey"] = processes.AuthenticationString(os.urandom(32))


def _put_in_place(script: str | None) -> None:
    """Let the interpreter find a script where it looks for what runs modules (`python -m`)."""
    if script is None:
        return

    stand_in = _Runpy("runpy")
    stand_in.script, stand_in.real = script, sys.modules.get("runpy")
    sys.modules["runpy"] = stand_in


class _Runpy(ModuleType):
    """Stands in for `runpy` until it is asked for what runs a module."""

    script: str
    real: ModuleType | None

    @property
    def _run_module_as_main(self) -> Callable[..., object]:
        del sys.modules["runpy"]
        if self.real is not None:
            sys.modules["runpy"] = self.real
        return _main_program(self.script)


def _main_program(script: str) -> Callable[..., object]:
    """Return a C function that runs a script as `__main__`, whatever its arguments."""
    path = script if os.path.isabs(script) else os.path.join(os.getcwd(), script)
    sys.argv[0] = script
    sys.path[0] = os.path.dirname(os.path.realpath(path))
    try:
        with open(path, "rb") as file:
            code = compile(file.read(), path, "exec", dont_inherit=True)
    except OSError as error:
        why = f"[Errno {error.errno}] {error.strerror}"
        print(f"{sys.orig_argv[0]}: can't open file {path!r}: {why}", file=sys.stderr)  # noqa: T201
        return _raising(SystemExit(2))
    except (SyntaxError, ValueError, OverflowError, MemoryError, RecursionError) as error:
        return _raising(error.with_traceback(None))
    # As PyRun_SimpleFile does: what is alive at the end is cleared, also after sys.exit.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(sys.modules["__main__"]))
    main = vars(sys.modules["__main__"])
    main |= {"__file__": path, "__cached__": None, "__loader__": SourceFileLoader("__main__", path)}
    evaluate = ctypes.pythonapi.PyEval_EvalCode
    evaluate.argtypes, evaluate.restype = [ctypes.py_object] * 3, ctypes.py_object
    return functools.partial(evaluate, code, main, main)


def _raising(error: BaseException) -> Callable[..., object]:
    set_error = ctypes.pythonapi.PyErr_SetObject
    set_error.argtypes, set_error.restype = [ctypes.py_object] * 2, None
    return functools.partial(set_error, type(error), error)
