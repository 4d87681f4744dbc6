"""Usage, cost and monthly budgets."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Literal

from berth.client.answers import Answer
from berth.client.transport import Transport, content_of

Owner = Literal["department", "project"]
SETTABLE = ("gpu_hours", "warn_at")


class Used(Answer):
    """Hours of GPUs, cores and GiB; `at` is where its piece of time begins."""

    at: datetime | None = None
    department: str | None = None
    project: str | None = None
    person: str | None = None
    pool: str | None = None
    gpu_hours: float = 0
    cpu_hours: float = 0
    memory_gib_hours: float = 0
    cost: float | None = None


class UsageReport(Answer):
    since: datetime
    until: datetime
    total: Used
    items: list[Used]


class BudgetMonth(Answer):
    begin: datetime
    end: datetime
    used: float
    percent: float
    pace_per_hour: float
    forecast: float
    forecast_percent: float


class Budget(Answer):
    owner: dict[str, str]
    gpu_hours: int
    warn_at: list[int]
    version: int
    month: BudgetMonth


class Usage:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def report(self, **question: object) -> UsageReport:
        """The whole report. `question` as in REST: since, until, by, step, zone, department, project, ..."""
        params = {**question, "limit": 500}
        whole: dict[str, Any] = self._transport.get("usage", params)
        while whole["next"]:
            more = self._transport.get("usage", {**params, "cursor": whole["next"]})
            whole = {**whole, "items": [*whole["items"], *more["items"]], "next": more["next"]}
        return UsageReport.model_validate({key: value for key, value in whole.items() if key != "next"})

    def csv(self, **question: object) -> Iterator[bytes]:
        """The same as a CSV file, as it arrives."""
        with self._transport.stream("usage", {**question, "format": "csv"}) as answer:
            yield from answer.iter_bytes()


class Budgets:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self) -> Iterator[Budget]:
        for item in self._transport.pages("budgets"):
            yield Budget.model_validate(item)

    def get(self, kind: Owner, name: str) -> Budget:
        return Budget.model_validate(self._transport.get(_path(kind, name)))

    def create(self, kind: Owner, name: str, values: Mapping[str, Any]) -> Budget:
        """Refused with Conflict when there is one already."""
        return self._put(_path(kind, name), values, {"If-None-Match": "*"})

    def edit(self, kind: Owner, name: str, changes: Mapping[str, Any]) -> Budget:
        """Changes some values and keeps the others; refused with Conflict when somebody was faster."""
        path = _path(kind, name)
        found = self._transport.ask("GET", path)
        present = content_of(found)
        values = {key: present[key] for key in SETTABLE}
        return self._put(path, {**values, **changes}, {"If-Match": found.headers.get("ETag", "*")})

    def delete(self, kind: Owner, name: str) -> None:
        """Refused with Conflict when somebody changed it meanwhile."""
        path = _path(kind, name)
        tag = self._transport.ask("GET", path).headers.get("ETag", "*")
        self._transport.ask("DELETE", path, headers={"If-Match": tag})

    def _put(self, path: str, values: Mapping[str, Any], condition: Mapping[str, str]) -> Budget:
        return Budget.model_validate(
            content_of(self._transport.ask("PUT", path, body=values, headers=condition))
        )


def _path(kind: Owner, name: str) -> str:
    return f"budgets/{kind}s/{name}"
