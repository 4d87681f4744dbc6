"""Here we read what happened: events, and who gave way to whom."""

from collections.abc import Iterator

from berth.client.answers import Event, Eviction
from berth.client.transport import Transport


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
        """Filters as in REST: kind, pool, project, beneficiary, workload, since, until."""
        for item in self._transport.pages("evictions", filters, limit):
            yield Eviction.model_validate(item)

    def csv(self, **filters: object) -> Iterator[bytes]:
        """The same as a CSV file, as it arrives."""
        with self._transport.stream("evictions", {**filters, "format": "csv"}) as answer:
            yield from answer.iter_bytes()
