# Generated from berth/client/aio/usage.py by `python -m berth.client.generate`; do not edit.
"""Usage, cost and monthly budgets."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from berth.client.http import content_of
from berth.client.models.usage import Budget, ClusterUse, NodeUse, OneWorkloadUse, UsageReport, WorkloadUse
from berth.client.sync.transport import Transport

Owner = Literal["department", "project"]
SETTABLE = ("gpu_hours", "warn_at")


class Usage:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def report(self, **question: object) -> UsageReport:
        """Return the entire report; `question` takes the query parameters of REST."""
        params = {**question, "limit": 500}
        whole: dict[str, Any] = self._transport.get("usage", params)
        while whole["next"]:
            more = self._transport.get("usage", {**params, "cursor": whole["next"]})
            whole = {**whole, "items": [*whole["items"], *more["items"]], "next": more["next"]}
        return UsageReport.model_validate({key: value for key, value in whole.items() if key != "next"})

    def csv(self, **question: object) -> Iterator[bytes]:
        """Stream the report as a CSV file."""
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
        """Create a budget. Raises Conflict if it exists."""
        return self._put(_path(kind, name), values, {"If-None-Match": "*"})

    def edit(self, kind: Owner, name: str, changes: Mapping[str, Any]) -> Budget:
        """Change the named values of a budget. Raises Conflict if it changed at the same time."""
        path = _path(kind, name)
        current = self._transport.ask("GET", path)
        present = content_of(current)
        values = {key: present[key] for key in SETTABLE}
        return self._put(path, {**values, **changes}, {"If-Match": current.headers.get("ETag", "*")})

    def delete(self, kind: Owner, name: str) -> None:
        """Delete a budget. Raises Conflict if it changed at the same time."""
        path = _path(kind, name)
        tag = self._transport.etag(path)
        self._transport.ask("DELETE", path, headers={"If-Match": tag})

    def _put(self, path: str, values: Mapping[str, Any], condition: Mapping[str, str]) -> Budget:
        return Budget.model_validate(
            content_of(self._transport.ask("PUT", path, body=values, headers=condition))
        )


def _path(kind: Owner, name: str) -> str:
    return f"budgets/{kind}s/{name}"


class Utilization:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def cluster(self, *, pool: str | None = None, hours: int | None = None) -> ClusterUse:
        """Return the utilization of all pools or of one, oldest hour first."""
        return ClusterUse.model_validate(self._transport.get("utilization", {"pool": pool, "hours": hours}))

    def nodes(self, *, pool: str | None = None, limit: int | None = None) -> Iterator[NodeUse]:
        for item in self._transport.pages("utilization/nodes", {"pool": pool}, limit):
            yield NodeUse.model_validate(item)

    def workloads(
        self, *, project: str | None = None, pool: str | None = None, limit: int | None = None
    ) -> Iterator[WorkloadUse]:
        """Iterate over running workloads, those with most allocated GPUs first."""
        for item in self._transport.pages("utilization/workloads", {"project": project, "pool": pool}, limit):
            yield WorkloadUse.model_validate(item)

    def node(self, name: str, *, span: int | None = None) -> NodeUse:
        return NodeUse.model_validate(self._transport.get(f"nodes/{name}/utilization", {"span": span}))

    def workload(
        self, workload_id: str, *, span: int | None = None, run: int | None = None
    ) -> OneWorkloadUse:
        """Return the utilization of one workload in the last `span` seconds before its end, or before now."""
        answer = self._transport.get(f"workloads/{workload_id}/utilization", {"span": span, "run": run})
        return OneWorkloadUse.model_validate(answer)
