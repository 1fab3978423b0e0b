"""Waiting without polling: a signal to all who wait, and the first of several events."""

import asyncio


class Signal:
    """Wakes everybody who waits at that moment; nothing is remembered."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def fire(self) -> None:
        """Wake all that wait."""
        self._event.set()
        self._event = asyncio.Event()

    def next(self) -> asyncio.Event:
        """Return the event that the next `fire` sets; take it before looking for work."""
        return self._event


async def first_of(*events: asyncio.Event, timeout_s: float) -> None:
    """Return when any of the events is set, or after `timeout_s`."""
    tasks = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(tasks, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
