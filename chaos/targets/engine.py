"""The Docker engine: a client with deadlines, and what each failure means for whoever runs us."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from docker import DockerClient
from docker.errors import APIError, DockerException, NotFound
from requests.exceptions import RequestException

from chaos.model import CannotRun, JsonMap

OWNER_KEY = "dev.flashruntime.owner"
OWNER = "flashruntime"
RUN_KEY = "dev.flashruntime.run"
ROLE_KEY = "dev.flashruntime.role"
SERVICE_KEY = "com.docker.compose.service"
CALL_TIMEOUT_S = 30
UndoAction = Callable[[DockerClient, str, JsonMap], None]
"""Puts something of a run right, given its arguments; an object that is gone is fine."""


def connect() -> DockerClient:
    """Return a client of the configured engine; raise CannotRun with the remedy."""
    try:
        client = DockerClient.from_env(timeout=CALL_TIMEOUT_S)
        client.ping()
    except (DockerException, RequestException, OSError) as error:
        where = os.environ.get("DOCKER_HOST") or "the default socket"
        raise CannotRun(
            f"no Docker engine answers at {where} ({error}). Start one, point DOCKER_HOST at one, "
            "or run `make chaos`, which sets one up where it may"
        ) from error
    return client


@contextmanager
def explained(doing: str) -> Iterator[None]:
    """Turn what the engine refuses into CannotRun; a missing object stays docker's NotFound."""
    try:
        yield
    except NotFound:
        raise
    except APIError as error:
        raise CannotRun(f"{doing}: the engine says: {error.explanation or error}") from error
    except RequestException as error:
        raise CannotRun(f"{doing}: the engine does not answer: {error}") from error


def run_labels(run_id: str) -> dict[str, str]:
    """Return the labels of everything that a run makes."""
    return {OWNER_KEY: OWNER, RUN_KEY: run_id}


def by_labels(
    run_id: str | None = None, more: Mapping[str, str] | None = None
) -> dict[str, list[str]]:
    """Return a filter for the engine's list calls: ours, of one run or of any, and `more`."""
    labels = [f"{OWNER_KEY}={OWNER}", RUN_KEY if run_id is None else f"{RUN_KEY}={run_id}"]
    labels += [f"{key}={value}" for key, value in (more or {}).items()]
    return {"label": labels}
