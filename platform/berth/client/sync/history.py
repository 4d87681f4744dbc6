# Generated from berth/client/aio/history.py by `python -m berth.client.generate`; do not edit.
"""Events, evictions, audit and cycles."""

from collections.abc import Iterator
from typing import Any

from berth.client.models.people import Change
from berth.client.models.scheduling import Cycle, Eviction, Health, MatrixOfEvictions, Replay
from berth.client.models.workloads import Event
from berth.client.sync.transport import Transport


class Events:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, *, limit: int | None = None, **filters: object) -> Iterator[Event]:
        """Filters as in REST: workload, project, kind, since."""
        for item in self._transport.pages("events", filters, limit):
            yield Event.model_validate(item)


class Evictions:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, *, limit: int | None = None, **filters: object) -> Iterator[Eviction]:
        """Filters as in REST: kind, pool, project, preemptor, workload, since, until."""
        for item in self._transport.pages("evictions", filters, limit):
            yield Eviction.model_validate(item)

    def matrix(self, **filters: object) -> MatrixOfEvictions:
        """Who took from whom, added up; filters as in REST, without workload."""
        return MatrixOfEvictions.model_validate(self._transport.get("evictions/matrix", filters))

    def csv(self, **filters: object) -> Iterator[bytes]:
        """The same as a CSV file, as it arrives."""
        with self._transport.stream("evictions", {**filters, "format": "csv"}) as answer:
            yield from answer.iter_bytes()


class Audit:
    """Who changed what, as far as one sees it."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, *, limit: int | None = None, **filters: object) -> Iterator[Change]:
        """Newest first; filters as in REST: actor, action, object_type, object_name, project, department,
        since, until."""
        for item in self._transport.pages("audit", filters, limit):
            yield Change.model_validate(item)


class Cycles:
    """For platform admins: what each cycle saw and decided."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, *, limit: int | None = None, **filters: object) -> Iterator[Cycle]:
        """Filters as in REST: since, until."""
        for item in self._transport.pages("cycles", filters, limit):
            yield Cycle.model_validate(item)

    def scenario(self, cycle: int) -> dict[str, Any] | None:
        """What it saw, as a scenario that `berth simulate` plays; None when that is not kept any more."""
        answer = self._transport.get(f"cycles/{cycle}", {"scenario": True})
        scenario: dict[str, Any] | None = answer["scenario"]
        return scenario

    def replay(self, cycle: int) -> Replay:
        """Decides it once more, on the server. Refused with Conflict when what it saw is not kept."""
        return Replay.model_validate(self._transport.post(f"cycles/{cycle}/replay"))

    def health(self) -> Health:
        """Return the leader, the last cycle and the invariants of the scheduler."""
        return Health.model_validate(self._transport.get("scheduler/health"))
