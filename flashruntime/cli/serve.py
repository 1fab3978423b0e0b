"""Run the coordinator; FLASHML_LEDGER_DIR and FLASHML_ARTIFACT_DIR say where it keeps its data."""

import errno
import resource
import socket
import sys
from argparse import ArgumentParser, Namespace
from contextlib import suppress

import uvicorn

from flashruntime.config import AccessSettings, CoordinatorSettings
from flashruntime.errors import ConfigError, InvalidInput
from flashruntime.service.addresses import is_loopback
from flashruntime.service.auth import TokenBook
from flashruntime.service.wire import BoundedHttp

SHUTDOWN_S = 5
MAX_FILES = 65_536


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default: loopback)"
    )
    parser.add_argument("--port", type=int, default=8000, help="port to listen on (default: 8000)")


def run(args: Namespace, parser: ArgumentParser) -> int:
    """Serve until SIGTERM or SIGINT; return 1 if the coordinator could not start."""
    if not 0 <= args.port <= 65535:
        parser.error(f"--port {args.port} must be between 0 and 65535")
    access = CoordinatorSettings.from_env().access
    TokenBook(access)
    listener = _listen(args.host, args.port, access)
    host, port = listener.getsockname()[:2]
    print(f"flashruntime serve: listening on http://{host}:{port}", file=sys.stderr)
    if not is_loopback(host) and not access.needs_token:
        text = "whoever reaches this address can run commands on the workers; keep it private"
        print(f"flashruntime serve: {text}", file=sys.stderr)
    server = uvicorn.Server(
        uvicorn.Config(
            "flashruntime.service.app:app",
            http=BoundedHttp,
            log_config=None,
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=SHUTDOWN_S,
        )
    )
    _raise_file_limit()
    try:
        with listener:
            server.run(sockets=[listener])
    except SystemExit:
        return 1
    return 0 if server.started else 1


def _listen(host: str, port: int, access: AccessSettings) -> socket.socket:
    """Bind first, so that a port in use is one clear line."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, address = found[0][0], str(found[0][4][0])
        _check_private(address, access)
        return socket.create_server((address, port), family=family, backlog=2048)
    except UnicodeError as error:
        raise ConfigError(f"--host {host!r} is no host name ({error}); choose another") from error
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(
                f"port {port} on {host} is in use; stop what listens there or choose another --port"
            ) from error
        raise ConfigError(
            f"cannot listen on {host}:{port} ({error.strerror}); choose another --host or --port"
        ) from error


def _raise_file_limit() -> None:
    """Take as many open files as this process may have: each connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_FILES)
    if soft not in {resource.RLIM_INFINITY, wanted} and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _check_private(address: str, access: AccessSettings) -> None:
    """Raise InvalidInput for an address that others reach, where nobody needs a token."""
    if not (is_loopback(address) or access.needs_token or access.allow_open):
        raise InvalidInput(
            f"--host {address} can be reached from other machines, and whoever reaches it can run "
            "commands on the workers; set FLASHML_TOKENS_FILE (`flashruntime token` makes a line), "
            "or FLASHML_ALLOW_OPEN=1 where the network is private, or stay on 127.0.0.1"
        )
