"""The environment of the ranks of a job on this machine, as torchrun gives it."""

import socket
from collections.abc import Mapping
from uuid import uuid4

from flashruntime.launch.keeper import ERROR_FILES


def with_defaults(env: Mapping[str, str], count: int | None) -> dict[str, str]:
    """Return the environment that all ranks share; several of them have one thread each."""
    defaults = {"OMP_NUM_THREADS": "1"} if count is not None and count > 1 else {}
    return {**defaults, **env}


def environments(env: Mapping[str, str], count: int | None) -> list[dict[str, str]]:
    """Return what each rank gets on top of `env`, an error file of its own among it.

    Without a count, one process gets nothing. The names and values are those of
    torch.distributed.run with one node and no restarts.
    """
    if count is None:
        return [{}]
    shared = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(_free_port()),
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        "ROLE_WORLD_SIZE": str(count),
        "GROUP_WORLD_SIZE": "1",
        "GROUP_RANK": "0",
        "ROLE_NAME": "default",
        "TORCHELASTIC_RUN_ID": str(uuid4()),
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": env.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
    }
    return [{**shared, **_of_rank(env, str(rank))} for rank in range(count)]


def _of_rank(env: Mapping[str, str], rank: str) -> dict[str, str]:
    own = {name: f"{env[name]}.rank{rank}" for name in ERROR_FILES if name in env}
    return {"RANK": rank, "LOCAL_RANK": rank, "ROLE_RANK": rank, **own}


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
