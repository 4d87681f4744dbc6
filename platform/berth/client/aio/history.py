"""Events, evictions, audit and cycles."""

from collections.abc import AsyncIterator
from typing import Any

from berth.client.aio.transport import AsyncTransport
from berth.client.models.people import Change
from berth.client.models.scheduling import Cycle, Eviction, Health, MatrixOfEvictions, Replay
from berth.client.models.workloads import Event


class AsyncEvents:
    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(self, *, limit: int | None = None, **filters: object) -> AsyncIterator[Event]:
        """Filters as in REST: workload, project, kind, since."""
        async for item in self._transport.pages("events", filters, limit):
            yield Event.model_validate(item)


class AsyncEvictions:
    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(self, *, limit: int | None = None, **filters: object) -> AsyncIterator[Eviction]:
        """Filters as in REST: kind, pool, project, preemptor, workload, since, until."""
        async for item in self._transport.pages("evictions", filters, limit):
            yield Eviction.model_validate(item)

    async def matrix(self, **filters: object) -> MatrixOfEvictions:
        """Who took from whom, added up; filters as in REST, without workload."""
        return MatrixOfEvictions.model_validate(await self._transport.get("evictions/matrix", filters))

    async def csv(self, **filters: object) -> AsyncIterator[bytes]:
        """The same as a CSV file, as it arrives."""
        async with self._transport.stream("evictions", {**filters, "format": "csv"}) as answer:
            async for piece in answer.aiter_bytes():
                yield piece


class AsyncAudit:
    """Who changed what, as far as one sees it."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(self, *, limit: int | None = None, **filters: object) -> AsyncIterator[Change]:
        """Newest first; filters as in REST: actor, action, object_type, object_name, project, department,
        since, until."""
        async for item in self._transport.pages("audit", filters, limit):
            yield Change.model_validate(item)


class AsyncCycles:
    """For platform admins: what each cycle saw and decided."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(self, *, limit: int | None = None, **filters: object) -> AsyncIterator[Cycle]:
        """Filters as in REST: since, until."""
        async for item in self._transport.pages("cycles", filters, limit):
            yield Cycle.model_validate(item)

    async def scenario(self, cycle: int) -> dict[str, Any] | None:
        """What it saw, as a scenario that `berth simulate` plays; None when that is not kept any more."""
        answer = await self._transport.get(f"cycles/{cycle}", {"scenario": True})
        scenario: dict[str, Any] | None = answer["scenario"]
        return scenario

    async def replay(self, cycle: int) -> Replay:
        """Decides it once more, on the server. Refused with Conflict when what it saw is not kept."""
        return Replay.model_validate(await self._transport.post(f"cycles/{cycle}/replay"))

    async def health(self) -> Health:
        """Return the leader, the last cycle and the invariants of the scheduler."""
        return Health.model_validate(await self._transport.get("scheduler/health"))
