"""The worker's own log: events with their ids, on the logger that the command line formats."""

import logging

LOGGER = logging.getLogger("flashruntime.worker")

Field = str | int | float | None


def info(event: str, **fields: Field) -> None:
    """Record what happened."""
    LOGGER.info(event, extra={"event": event, **fields})


def warning(event: str, **fields: Field) -> None:
    """Record what went wrong, though the worker goes on."""
    LOGGER.warning(event, extra={"event": event, **fields})
