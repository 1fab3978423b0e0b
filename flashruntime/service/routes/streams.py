"""Events as a stream, for the routes that list them."""

from typing import Annotated, Any

from fastapi import Depends, Header, Query, Request
from fastapi.responses import StreamingResponse

from flashruntime.service.routes import MAX_ID, Watcher
from flashruntime.service.stream import MEDIA_TYPE, Wanted

DOCUMENTED: dict[int | str, dict[str, Any]] = {
    200: {"content": {MEDIA_TYPE: {"schema": {"type": "string"}}}}
}
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class StreamRequest:
    """What a request for events says about a stream: whether, of what, and from where."""

    def __init__(
        self,
        request: Request,
        watching: Watcher,
        last_event_id: Annotated[int | None, Header(ge=0, le=MAX_ID)] = None,
        created: Annotated[bool, Query(description="stream events of created tasks")] = True,
        brief: Annotated[bool, Query(description="stream without the ends of logs")] = False,
    ) -> None:
        self.wanted = MEDIA_TYPE in request.headers.get("accept", "")
        self._watching = watching
        self._last_id = last_event_id
        self._created = created
        self._brief = brief

    async def answer(self, job_id: str | None, after: int) -> StreamingResponse:
        """Return the stream; what the client says that it has seen last wins over `after`."""
        begins = after if self._last_id is None else self._last_id
        wanted = Wanted(job_id, self._created, self._brief)
        stream = await self._watching.streams.open(wanted, begins)
        return StreamingResponse(stream, headers=_HEADERS, media_type=MEDIA_TYPE)


Streamed = Annotated[StreamRequest, Depends()]
