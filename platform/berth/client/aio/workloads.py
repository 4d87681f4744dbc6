"""Submit, find, follow and control workloads, under asyncio."""

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

import httpx

from berth.client.aio.transport import AsyncTransport
from berth.client.errors import Ambiguous, NotFound
from berth.client.models.scheduling import Eviction
from berth.client.models.workloads import (
    DryRun,
    Event,
    Explanation,
    FoundInLog,
    LogChunk,
    Pod,
    PortLink,
    Workload,
)

FOUND_AT_ONCE = 500
LOG_CHUNK = 1 << 20
POLL_SECONDS = 1.0
Document = Mapping[str, Any]


class AsyncWorkloads:
    def __init__(self, transport: AsyncTransport, sleep: Callable[[float], Awaitable[None]]) -> None:
        self._transport = transport
        self._sleep = sleep

    async def submit(self, document: Document, *, key: str | None = None) -> Workload:
        """Sent again when the connection is lost, submitted once. The same `key` is the same submission."""
        return Workload.model_validate(await self._transport.post("workloads", document, key=key))

    async def dry_run(self, document: Document) -> DryRun:
        """What would happen now if it were submitted; nothing is stored."""
        return DryRun.model_validate(await self._transport.post("workloads", document, {"dry_run": True}))

    async def list(self, *, limit: int | None = None, **filters: object) -> AsyncIterator[Workload]:
        """Filters as in REST: project, department, pool, phase, kind, reason, label, search, sort..."""
        async for item in self._transport.pages("workloads", filters, limit):
            yield Workload.model_validate(item)

    async def get(self, workload_id: str) -> Workload:
        return Workload.model_validate(await self._transport.get(f"workloads/{workload_id}"))

    async def find(self, reference: str) -> Workload:
        """By id, NAME or PROJECT/NAME, as the client without asyncio does."""
        if is_id(reference):
            return await self.get(reference)
        project, _, name = reference.rpartition("/")
        listed = self.list(search=name, project=project or None, sort="-submitted_at")
        found = [workload async for workload in listed] if name else []
        return await self.get(the_one(reference, candidates_of(name, found)).id)

    async def cancel(self, workload_id: str) -> Workload:
        return await self._act(workload_id, "cancel")

    async def suspend(self, workload_id: str) -> Workload:
        return await self._act(workload_id, "suspend")

    async def resume(self, workload_id: str) -> Workload:
        return await self._act(workload_id, "resume")

    async def delete(self, workload_id: str) -> None:
        await self._transport.ask("DELETE", f"workloads/{workload_id}")

    async def explain(self, workload_id: str) -> Explanation:
        return Explanation.model_validate(await self._transport.get(f"workloads/{workload_id}/explain"))

    async def pods(self, workload_id: str) -> Sequence[Pod]:
        items = self._transport.pages(f"workloads/{workload_id}/pods")
        return [Pod.model_validate(item) async for item in items]

    async def link_to_port(self, workload_id: str, port: str) -> PortLink:
        """A one-time link by which a browser opens this port of a running workload."""
        answer = await self._transport.post(f"workloads/{workload_id}/ports/{port}/link")
        return PortLink.model_validate(answer)

    async def events(self, workload_id: str) -> Sequence[Event]:
        items = self._transport.pages(f"workloads/{workload_id}/events")
        return [Event.model_validate(item) async for item in items]

    async def evictions(self, workload_id: str) -> Sequence[Eviction]:
        items = self._transport.pages(f"workloads/{workload_id}/evictions")
        return [Eviction.model_validate(item) async for item in items]

    async def changes(self, workload_id: str, poll: float = POLL_SECONDS) -> AsyncIterator[Workload]:
        """The workload as it is, then each time its phase, reason or message changed, until it has ended."""
        seen = None
        while True:
            workload = await self.get(workload_id)
            state = (workload.phase, workload.reason, workload.message, workload.run)
            if state != seen:
                yield workload
            if workload.has_ended:
                return
            seen = state
            await self._sleep(poll)

    async def log(
        self,
        workload_id: str,
        *,
        pod: str | None = None,
        run: int | None = None,
        tail: int | None = None,
        offset: int | None = None,
        limit: int | None = None,
    ) -> LogChunk:
        """A piece of a pod's output: the last `tail` lines, or `limit` bytes from `offset`."""
        params = {"pod": pod, "run": run, "tail": tail, "offset": offset, "limit": limit}
        answer = await self._transport.ask("GET", f"workloads/{workload_id}/logs", params=params)
        return chunk_of(answer, offset or 0)

    async def search_log(
        self,
        workload_id: str,
        text: str,
        *,
        pod: str | None = None,
        run: int | None = None,
        around: int = 0,
        ignore_case: bool = False,
        limit: int | None = None,
    ) -> AsyncIterator[FoundInLog]:
        """Lines of a pod's output that contain the text, with those around them, found by the server: in one
        answer after the other, until the end that the log has by then."""
        params = {"text": text, "pod": pod, "run": run, "around": around, "ignore_case": ignore_case}
        cursor, left = None, limit
        while left is None or left > 0:
            asked = {**params, "limit": min(left or FOUND_AT_ONCE, FOUND_AT_ONCE), "cursor": cursor}
            answer = await self._transport.get(f"workloads/{workload_id}/logs/search", asked)
            found = FoundInLog.model_validate(answer)
            yield found
            left = None if left is None else left - len(found.items)
            cursor = found.next
            if cursor is None:
                return

    async def log_stream(
        self, workload_id: str, *, pod: str | None = None, run: int | None = None, offset: int = 0
    ) -> AsyncIterator[bytes]:
        """A pod's output from `offset` on, as it is written, until the pod has ended. Who stops before that
        closes it (`contextlib.aclosing`)."""
        params = {"pod": pod, "run": run, "offset": offset, "follow": True}
        async with self._transport.stream(f"workloads/{workload_id}/logs", params) as answer:
            async for piece in answer.aiter_bytes():
                yield piece

    async def _act(self, workload_id: str, action: str) -> Workload:
        return Workload.model_validate(await self._transport.post(f"workloads/{workload_id}/{action}"))


def candidates_of(name: str, found: Iterable[Workload]) -> Sequence[Workload]:
    """Those of that name that live; if none does, those that have ended."""
    named = [workload for workload in found if workload.name == name]
    return [workload for workload in named if not workload.has_ended] or named


def the_one(reference: str, candidates: Sequence[Workload]) -> Workload:
    if not candidates:
        raise NotFound(404, {"detail": f"There is no workload {reference} that you may see."})
    handles = sorted({workload.handle for workload in candidates})
    if len(handles) > 1:
        raise Ambiguous(reference, handles)
    return candidates[0]


def chunk_of(answer: httpx.Response, start: int) -> LogChunk:
    following = int(answer.headers.get("X-Next-Offset", start + len(answer.content)))
    return LogChunk(answer.content, following, answer.headers.get("X-Complete", "").lower() == "true")


def is_id(reference: str) -> bool:
    try:
        return str(uuid.UUID(reference)) == reference.lower()
    except ValueError:
        return False
