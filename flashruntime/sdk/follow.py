"""Copies what a run of one task prints, attempt after attempt, while it runs."""

from contextlib import suppress
from pathlib import Path
from threading import Event as Flag
from threading import Thread
from typing import BinaryIO, Self

from flashruntime.launch.files import open_regular
from flashruntime.sdk.run import Run

INTERVAL_S = 0.2
CHUNK_BYTES = 1024 * 1024


class Follower:
    """Follows until it is closed, and then to the end; without a `stream` it does nothing."""

    def __init__(self, run: Run, stream: BinaryIO | None) -> None:
        self._run = run
        self._stream = stream
        self._closed = Flag()
        self._offsets: dict[Path, int] = {}
        self._thread = Thread(target=self._follow, name="follow", daemon=True)

    def __enter__(self) -> Self:
        if self._stream is not None:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join()

    def _follow(self) -> None:
        with suppress(BrokenPipeError):
            while not self._closed.wait(INTERVAL_S):
                self._copy()
            self._copy()

    def _copy(self) -> None:
        assert self._stream is not None  # noqa: S101 (the thread runs only with a stream)
        for attempt in self._run.attempts:
            path = self._run.output_dir / attempt.log
            offset = self._offsets.get(path, 0)
            with suppress(FileNotFoundError), open_regular(path) as file:
                file.seek(offset)
                while data := file.read(CHUNK_BYTES):
                    self._stream.write(data)
                    offset += len(data)
            self._offsets[path] = offset
        self._stream.flush()
