# Generated from berth/client/aio/history.py by `python -m berth.client.generate`; do not edit.
"""List events, evictions, audit entries and scheduling cycles."""

from collections.abc import Iterator
from typing import Any

from berth.client.models.people import AuditEntry
from berth.client.models.scheduling import Cycle, Eviction, EvictionMatrix, Health, Replay
from berth.client.models.workloads import Event
from berth.client.sync.transport import Transport


class Events:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, *, limit: int | None = None, **filters: object) -> Iterator[Event]:
        """Iterate over events, newest first. Filters: workload, project, kind, since."""
        for item in self._transport.iterate_items("events", filters, limit):
            yield Event.model_validate(item)


class Evictions:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, *, limit: int | None = None, **filters: object) -> Iterator[Eviction]:
        """Iterate over evictions, newest first.

        Filters: kind, pool, project, preemptor, workload, since, until.
        """
        for item in self._transport.iterate_items("evictions", filters, limit):
            yield Eviction.model_validate(item)

    def matrix(self, **filters: object) -> EvictionMatrix:
        """Return eviction totals by pair of projects. Filters: those of `list` except workload."""
        return EvictionMatrix.model_validate(self._transport.get("evictions/matrix", filters))

    def csv(self, **filters: object) -> Iterator[bytes]:
        """Stream the evictions as a CSV file. Filters: those of `list`."""
        with self._transport.stream("evictions", {**filters, "format": "csv"}) as response:
            yield from response.iter_bytes()


class Audit:
    """Audit log entries that the user may see."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, *, limit: int | None = None, **filters: object) -> Iterator[AuditEntry]:
        """Iterate over audit entries, newest first.

        Filters: actor, action, object_type, object_name, project, department, since, until.
        """
        for item in self._transport.iterate_items("audit", filters, limit):
            yield AuditEntry.model_validate(item)


class Cycles:
    """Scheduling cycles and their decisions, for platform admins."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, *, limit: int | None = None, **filters: object) -> Iterator[Cycle]:
        """Iterate over cycles, newest first. Filters: since, until."""
        for item in self._transport.iterate_items("cycles", filters, limit):
            yield Cycle.model_validate(item)

    def scenario(self, cycle: int) -> dict[str, Any] | None:
        """Return the input of a cycle as a scenario for `berth simulate`, or None if not stored."""
        response = self._transport.get(f"cycles/{cycle}", {"scenario": True})
        scenario: dict[str, Any] | None = response["scenario"]
        return scenario

    def replay(self, cycle: int) -> Replay:
        """Replay a cycle and compare its decisions. Raises Conflict if its input is no longer stored."""
        return Replay.model_validate(self._transport.post(f"cycles/{cycle}/replay"))

    def health(self) -> Health:
        """Return the scheduler's leader, last cycle and invariants."""
        return Health.model_validate(self._transport.get("scheduler/health"))
