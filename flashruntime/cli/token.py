"""Make a token: its text, and the line that lets it in.

The token goes to whoever is to use it (FLASHML_TOKEN or FLASHML_TOKEN_FILE), the line into the
coordinator's file FLASHML_TOKENS_FILE. The line holds a digest, from which nobody gets the token.
"""

import os
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from flashruntime.credentials import Role, digest_of, new_token
from flashruntime.errors import InvalidInput
from flashruntime.service.auth import parse_line

WHAT_NEXT = {
    Role.OPERATOR: "use it with `flashruntime submit`, `status`, `cancel` and the like",
    Role.WORKER: "use it with `flashruntime work`, FLASHML_NODE_ID one of",
}


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--role", choices=[role.value for role in Role], required=True)
    parser.add_argument("--name", required=True, help="whom it stands for, in logs and answers")
    parser.add_argument(
        "--nodes",
        metavar="PATTERN,...",
        help="node ids that a worker may have; * stands for anything (default: NAME,NAME-*)",
    )
    parser.add_argument(
        "--file", type=Path, help="add the line to this file of the coordinator; it may be in use"
    )


def run(args: Namespace, _: ArgumentParser) -> int:
    """Print a token, and below it its line; with --file, only the token."""
    token, role = new_token(), Role(args.role)
    line = f"{role.value} {args.name} sha256:{digest_of(token).hex()}"
    if args.nodes:
        line += f" nodes={args.nodes}"
    try:
        known = parse_line(line.split())
    except ValueError as error:
        raise InvalidInput(f"the line for {args.name!r} {error}") from error
    print(token)
    if args.file is None:
        print(line)
    else:
        _append(args.file, line)
    nodes = f" {', '.join(known.caller.nodes)}" if known.caller.nodes else ""
    print(f"flashruntime token: {WHAT_NEXT[role]}{nodes}", file=sys.stderr)
    return 0


def _append(path: Path, line: str) -> None:
    """Add a line so that a reader sees all of it or nothing; nobody else may read a new file."""
    before = path.read_text(encoding="ascii") if path.exists() else ""
    if before and not before.endswith("\n"):
        before += "\n"
    part = path.with_name(f".{path.name}.{os.getpid()}")
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as file:
            file.write(f"{before}{line}\n")
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
