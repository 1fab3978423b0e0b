"""The command `flashruntime`: a verb per file. Exit codes: 0 ok, 1 failure, 2 bad input."""

import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module

from flashruntime import __version__
from flashruntime.errors import FlashError, InvalidInput

VERBS = {
    "submit": "submit a command as a job",
    "jobs": "list the jobs of a coordinator",
    "status": "show a job and its tasks",
    "logs": "show what a job has printed",
    "fetch": "download the outputs of a job",
    "cancel": "cancel a job",
    "delete": "delete jobs that have ended",
    "serve": "run the coordinator",
    "work": "run a worker",
    "nodes": "list the workers of a coordinator",
    "cordon": "give workers no new tasks",
    "uncordon": "give workers tasks again",
    "drain": "let workers hand back their tasks",
    "backup": "back up a coordinator, or check a backup",
    "token": "make a token for the coordinator",
    "verify": "verify the checkpoints of a tree",
    "verify-resume": "prove that a command resumes exactly",
}
EXTRAS = {"httpx": "client", "uvicorn": "service", "fastapi": "service"}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        verb = _overview().parse_args(words[:1]).verb
        return _run(verb, words[1:])
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else 0


def _overview() -> ArgumentParser:
    listed = "\n".join(f"  {verb:13} {purpose}" for verb, purpose in VERBS.items())
    parser = ArgumentParser(
        prog="flashruntime",
        usage="flashruntime VERB ...",
        description=f"A fault-tolerant runtime for ML training jobs.\n\nverbs:\n{listed}",
        epilog="`flashruntime VERB --help` explains one.",
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=__version__)
    parser.add_argument("verb", choices=VERBS, metavar="VERB", help="one of the verbs above")
    return parser


def _run(verb: str, words: list[str]) -> int:
    parser = ArgumentParser(prog=f"flashruntime {verb}")
    try:
        module = import_module(f"flashruntime.cli.{verb.replace('-', '_')}")
        parser.description = module.__doc__
        module.add_arguments(parser)
        code: int = module.run(parser.parse_args(words), parser)
    except FlashError as error:
        return _failed(verb, str(error), 2 if isinstance(error, InvalidInput) else 1)
    except ModuleNotFoundError as error:
        extra = EXTRAS.get(error.name or "")
        if extra is None:
            raise
        return _failed(verb, f"needs {error.name}: in the checkout, pip install '.[{extra}]'")
    except BrokenPipeError:
        sys.stderr.close()
        return 1
    except OSError as error:
        return _failed(verb, str(error))
    except KeyboardInterrupt:
        return _failed(verb, "interrupted")
    return code


def _failed(verb: str, message: str, code: int = 1) -> int:
    print(f"flashruntime {verb}: {message}", file=sys.stderr)
    return code
