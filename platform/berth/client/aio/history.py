"""List events, evictions, audit entries and scheduling cycles."""

from collections.abc import AsyncIterator
from typing import Any

from berth.client.aio.resource import AsyncResource
from berth.client.models.people import AuditEntry
from berth.client.models.scheduling import Cycle, Eviction, EvictionMatrix, Health, Replay
from berth.client.models.workloads import Event


class AsyncEvents(AsyncResource):
    def list(self, *, limit: int | None = None, **filters: object) -> AsyncIterator[Event]:
        """Iterate over events, newest first. Filters: workload, project, kind, since."""
        return self._iterate(Event, "events", filters, limit)


class AsyncEvictions(AsyncResource):
    def list(self, *, limit: int | None = None, **filters: object) -> AsyncIterator[Eviction]:
        """Iterate over evictions, newest first.

        Filters: kind, pool, project, preemptor, workload, since, until.
        """
        return self._iterate(Eviction, "evictions", filters, limit)

    async def matrix(self, **filters: object) -> EvictionMatrix:
        """Return eviction totals for each pair of projects.

        Accepts the filters of `list`, except workload.
        """
        return await self._get(EvictionMatrix, "evictions/matrix", filters)

    async def csv(self, **filters: object) -> AsyncIterator[bytes]:
        """Stream the evictions as a CSV file. Accepts the filters of `list`."""
        async with self._transport.stream("evictions", {**filters, "format": "csv"}) as response:
            async for chunk in response.aiter_bytes():
                yield chunk


class AsyncAudit(AsyncResource):
    """Audit log entries that the user may see."""

    def list(self, *, limit: int | None = None, **filters: object) -> AsyncIterator[AuditEntry]:
        """Iterate over audit entries, newest first.

        Filters: actor, action, object_type, object_name, project, department, since, until.
        """
        return self._iterate(AuditEntry, "audit", filters, limit)


class AsyncCycles(AsyncResource):
    """Scheduling cycles and their decisions, for platform admins."""

    def list(self, *, limit: int | None = None, **filters: object) -> AsyncIterator[Cycle]:
        """Iterate over cycles, newest first. Filters: since, until."""
        return self._iterate(Cycle, "cycles", filters, limit)

    async def scenario(self, cycle: int) -> dict[str, Any] | None:
        """Return the input of a cycle as a scenario for `berth simulate`, or None if it is not stored."""
        response = await self._transport.get(f"cycles/{cycle}", {"scenario": True})
        scenario: dict[str, Any] | None = response["scenario"]
        return scenario

    async def replay(self, cycle: int) -> Replay:
        """Replay a recorded cycle, and compare the new decisions with the recorded ones.

        Raises Conflict if the cycle's input is no longer stored.
        """
        return await self._post(Replay, f"cycles/{cycle}/replay")

    async def health(self) -> Health:
        """Return the scheduler's leader, last cycle and invariants."""
        return await self._get(Health, "scheduler/health")
