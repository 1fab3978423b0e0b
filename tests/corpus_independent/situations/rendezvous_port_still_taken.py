"""The rendezvous port is still held, as by a process of an earlier run that has not gone yet."""

import socket
import sys


class DistNetworkError(RuntimeError):
    __module__ = "torch.distributed"


def listen(port: int) -> socket.socket:
    server = socket.socket()
    try:
        server.bind(("127.0.0.1", port))
    except OSError as error:
        print(
            f"[W socket.cpp:464] [c10d] The server socket has failed to bind to 0.0.0.0:{port} "
            f"(errno: {error.errno} - Address already in use).",
            file=sys.stderr,
        )
        raise DistNetworkError(
            "The server socket has failed to listen on any local network address. "
            f"port: {port}, useIpv6: false, code: -{error.errno}, name: EADDRINUSE, "
            "message: address already in use"
        ) from None
    return server


holder = socket.socket()
holder.bind(("127.0.0.1", 0))
holder.listen()
listen(holder.getsockname()[1])
