"""What the coordinator does, behind HTTP."""

import asyncio
import hashlib
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import BinaryIO

from flashruntime.errors import InvalidInput, NotFound
from flashruntime.leases.record import Submission
from flashruntime.protocol.base import strict_dumps
from flashruntime.protocol.jobs import InputFile, JobRecord, JobSpec
from flashruntime.protocol.tasks import (
    ArtifactRecord,
    ClaimRequest,
    FailAnswer,
    FailRequest,
    Lease,
    LogSize,
    TaskState,
)
from flashruntime.service.blobs import check_size
from flashruntime.service.core import Core
from flashruntime.service.expand import expand
from flashruntime.service.small_puts import SMALL_BYTES
from flashruntime.service.waiting import first_of

BLOCK_BYTES = 1024 * 1024
RECHECK_S = 1.0


_LEASE_ID = re.compile(r"(?<=/)lease-[0-9a-f]{32}(?=/)")


class Services:
    """Everything that the routes may call."""

    def __init__(self, core: Core) -> None:
        self.manager = core.manager
        self.ledger = core.ledger
        self.check = core.check
        self.jobs = Jobs(core)
        self.attempts = Attempts(core)
        self.artifacts = Artifacts(core)


class Jobs:
    """Submitting, cancelling and reading the output of jobs."""

    def __init__(self, core: Core) -> None:
        self._core = core

    async def submit(self, spec: JobSpec, idempotency_key: str | None) -> JobRecord:
        """Record a job with all its tasks, or return the one recorded under the same key."""
        submission = await self._core.disk(_submission, spec, idempotency_key)
        record, created = await self._core.ledger(self._submit, submission)
        if created:
            self._core.work.fire()
        return record

    async def output(self, job_id: str, lines: int, task: int | None, attempt: int | None) -> str:
        """Return the last lines that the attempts of a job printed."""
        await self._core.ledger(self._core.manager.job, job_id)
        return await self._core.disk(self._core.logs.tail, job_id, lines, task, attempt)

    def _submit(self, submission: Submission) -> tuple[JobRecord, bool]:
        """Record a job whose inputs are there; a repeated one is not asked for them again."""
        first = self._core.manager.submitted(submission)
        if first is not None:
            return first, False
        self._check_inputs(submission.spec.spec.workload.parameters.inputs)
        return self._core.manager.submit(submission)

    def _check_inputs(self, inputs: list[InputFile]) -> None:
        for file in inputs:
            try:
                stored = self._core.manager.object(file.key)
            except NotFound as error:
                raise InvalidInput(
                    f"input {file.key!r} is not in the store; upload it before the job"
                ) from error
            if stored.sha256 != file.sha256:
                raise InvalidInput(
                    f"input {file.key!r} has sha256 {stored.sha256} in the store, the job says "
                    f"{file.sha256}; upload it again, or correct the job"
                )


class Attempts:
    """Giving out leases and hearing from their holders."""

    def __init__(self, core: Core) -> None:
        self._core = core

    async def claim(
        self, request: ClaimRequest, gone: Callable[[], Awaitable[None]]
    ) -> Lease | None:
        """Return a lease as soon as there is one, None after `wait_s` or at shutdown.

        Nothing is given out after `gone` returned: the asker has closed its connection. A task
        that is held back from this node becomes free by time alone, hence the second look.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + request.wait_s
        woken = self._core.work.next()
        lease = await self._core.ledger(self._core.manager.claim, request)
        if lease is not None or request.wait_s <= 0:
            return lease
        left = asyncio.Event()
        watch = asyncio.ensure_future(_set_after(gone, left))
        try:
            while lease is None and (wait_s := until - loop.time()) > 0:
                await first_of(woken, left, self._core.closing, timeout_s=min(wait_s, RECHECK_S))
                if left.is_set() or self._core.closing.is_set():
                    return None
                woken = self._core.work.next()
                lease = await self._core.ledger(self._core.manager.claim, request)
            return lease
        finally:
            watch.cancel()

    async def append_output(self, lease_id: str, offset: int, data: bytes) -> LogSize:
        """Store output of an attempt; return how much of it there is."""
        core = self._core
        lease = await core.ledger(core.manager.check_holder, lease_id, "logs")
        index = int(lease.task_id.rpartition("-")[2])
        size = await core.output(
            core.logs.append, lease.job_id, index, lease.attempt_number, offset, data
        )
        return LogSize(size=size)

    async def fail(self, lease_id: str, request: FailRequest) -> FailAnswer:
        """Record that an attempt failed, with what the policy decides about it."""
        core = self._core
        answer = await core.ledger(core.manager.fail, lease_id, request, core.judge)
        if answer.task_state is TaskState.PENDING:
            self._core.work.fire()
        return answer


class Artifacts:
    """Taking in and giving out the bytes of objects."""

    def __init__(self, core: Core) -> None:
        self._core = core

    async def put(
        self, key: str, chunks: AsyncIterator[bytes], declared: int | None, sha256: str | None
    ) -> ArtifactRecord:
        """Store what arrives under `key`; nothing of it is seen before all of it is durable."""
        core = self._core
        check_size(declared or 0, core.blobs.max_bytes)
        if declared is not None and declared <= SMALL_BYTES:
            data = b"".join([chunk async for chunk in chunks])
            return await core.put_small(key, data, sha256)
        await core.ledger(self._check_owner, key)
        upload = core.blobs.upload()
        try:
            block = bytearray()
            async for chunk in chunks:
                block += chunk
                if len(block) >= BLOCK_BYTES:
                    await core.disk(upload.write, bytes(block))
                    block.clear()
            found = await core.disk(upload.finish, bytes(block), sha256)
        finally:
            await core.disk(upload.close)
        return await core.ledger(core.manager.put_object, key, found, upload.size_bytes, None)

    def _check_owner(self, key: str) -> None:
        """Refuse a fenced attempt before its bytes are read."""
        for lease_id in _LEASE_ID.findall(key):
            with suppress(NotFound):
                self._core.manager.check_holder(lease_id, "artifact")

    async def find(self, key: str) -> ArtifactRecord:
        """Return what is stored under `key`."""
        return await self._core.ledger(self._core.manager.object, key)

    async def read(self, record: ArtifactRecord, start: int, end: int) -> AsyncIterator[bytes]:
        """Yield the bytes from `start` up to `end`; the object is open before the first of them."""
        file = await self._core.disk(self._core.blobs.read, record.sha256, record.size_bytes)
        return self._blocks(file, start, end)

    async def _blocks(self, file: BinaryIO, start: int, end: int) -> AsyncIterator[bytes]:
        try:
            await self._core.disk(file.seek, start)
            while start < end:
                block = await self._core.disk(file.read, min(BLOCK_BYTES, end - start))
                if not block:
                    return
                start += len(block)
                yield block
        finally:
            file.close()


def _submission(spec: JobSpec, idempotency_key: str | None) -> Submission:
    text = strict_dumps(spec.model_dump(mode="json"))
    return Submission(
        job_id=f"job-{secrets.token_hex(6)}",
        spec=spec,
        payloads=expand(spec),
        lease_s=spec.spec.workload.parameters.lease_seconds,
        idempotency_key=idempotency_key,
        request_digest=hashlib.sha256(text.encode()).hexdigest(),
    )


async def _set_after(wait: Callable[[], Awaitable[None]], event: asyncio.Event) -> None:
    await wait()
    event.set()
