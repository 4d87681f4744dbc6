# Generated from berth/client/aio/history.py by `python -m berth.client.generate`; do not edit.
"""List events, evictions, audit entries and scheduling cycles."""

from collections.abc import Iterator
from typing import Any

from berth.client.models.people import AuditEntry
from berth.client.models.scheduling import Cycle, Eviction, EvictionMatrix, Health, Replay
from berth.client.models.workloads import Event
from berth.client.sync.resource import Resource


class Events(Resource):
    def list(self, *, limit: int | None = None, **filters: object) -> Iterator[Event]:
        """Iterate over events, newest first. Filters: workload, project, kind, since."""
        return self._iterate(Event, "events", filters, limit)


class Evictions(Resource):
    def list(self, *, limit: int | None = None, **filters: object) -> Iterator[Eviction]:
        """Iterate over evictions, newest first.

        Filters: kind, pool, project, preemptor, workload, since, until.
        """
        return self._iterate(Eviction, "evictions", filters, limit)

    def matrix(self, **filters: object) -> EvictionMatrix:
        """Return eviction totals for each pair of projects.

        Accepts the filters of `list`, except workload.
        """
        return self._get(EvictionMatrix, "evictions/matrix", filters)

    def csv(self, **filters: object) -> Iterator[bytes]:
        """Stream the evictions as a CSV file. Accepts the filters of `list`."""
        with self._transport.stream("evictions", {**filters, "format": "csv"}) as response:
            yield from response.iter_bytes()


class Audit(Resource):
    """Audit log entries that the user may see."""

    def list(self, *, limit: int | None = None, **filters: object) -> Iterator[AuditEntry]:
        """Iterate over audit entries, newest first.

        Filters: actor, action, object_type, object_name, project, department, since, until.
        """
        return self._iterate(AuditEntry, "audit", filters, limit)


class Cycles(Resource):
    """Scheduling cycles and their decisions, for platform admins."""

    def list(self, *, limit: int | None = None, **filters: object) -> Iterator[Cycle]:
        """Iterate over cycles, newest first. Filters: since, until."""
        return self._iterate(Cycle, "cycles", filters, limit)

    def scenario(self, cycle: int) -> dict[str, Any] | None:
        """Return the input of a cycle as a scenario for `berth simulate`, or None if it is not stored."""
        response = self._transport.get(f"cycles/{cycle}", {"scenario": True})
        scenario: dict[str, Any] | None = response["scenario"]
        return scenario

    def replay(self, cycle: int) -> Replay:
        """Replay a recorded cycle, and compare the new decisions with the recorded ones.

        Raises Conflict if the cycle's input is no longer stored.
        """
        return self._post(Replay, f"cycles/{cycle}/replay")

    def health(self) -> Health:
        """Return the scheduler's leader, last cycle and invariants."""
        return self._get(Health, "scheduler/health")
