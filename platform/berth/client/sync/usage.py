# Generated from berth/client/aio/usage.py by `python -m berth.client.generate`; do not edit.
"""Read usage, cost and utilization, and manage monthly budgets."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from berth.client.models.usage import (
    Budget,
    ClusterUtilization,
    NodeUtilization,
    NodeUtilizationDetail,
    UsageReport,
    WorkloadUtilization,
    WorkloadUtilizationDetail,
)
from berth.client.sync.resource import Resource

Owner = Literal["department", "project"]
SETTABLE = ("gpu_hours", "warn_at")


class Usage(Resource):
    def report(self, **query: object) -> UsageReport:
        """Return the entire usage report. Keyword arguments are the query parameters of the REST API."""
        params = {**query, "limit": 500}
        merged: dict[str, Any] = self._transport.get("usage", params)
        while merged["next"]:
            more = self._transport.get("usage", {**params, "cursor": merged["next"]})
            merged = {**merged, "items": [*merged["items"], *more["items"]], "next": more["next"]}
        return UsageReport.model_validate({key: value for key, value in merged.items() if key != "next"})

    def csv(self, **query: object) -> Iterator[bytes]:
        """Stream the usage report as a CSV file."""
        with self._transport.stream("usage", {**query, "format": "csv"}) as response:
            yield from response.iter_bytes()


class Budgets(Resource):
    def list(self) -> Iterator[Budget]:
        return self._iterate(Budget, "budgets")

    def get(self, kind: Owner, name: str) -> Budget:
        return self._get(Budget, _path(kind, name))

    def create(self, kind: Owner, name: str, values: Mapping[str, Any]) -> Budget:
        """Create a budget. Raises Conflict if the owner already has a budget."""
        return self._put(Budget, _path(kind, name), values, "")

    def edit(self, kind: Owner, name: str, changes: Mapping[str, Any]) -> Budget:
        """Change the given values of a budget. Raises Conflict if the budget was changed concurrently."""
        path = _path(kind, name)
        present, tag = self._read(path)
        values = {key: present[key] for key in SETTABLE}
        return self._put(Budget, path, {**values, **changes}, tag)

    def delete(self, kind: Owner, name: str) -> None:
        """Delete a budget. Raises Conflict if the budget was changed concurrently."""
        self._delete_if_unchanged(_path(kind, name))


def _path(kind: Owner, name: str) -> str:
    return f"budgets/{kind}s/{name}"


class Utilization(Resource):
    def cluster(self, *, pool: str | None = None, hours: int | None = None) -> ClusterUtilization:
        """Return the current and the hourly utilization of one pool or all pools, oldest hour first."""
        return self._get(ClusterUtilization, "utilization", {"pool": pool, "hours": hours})

    def nodes(self, *, pool: str | None = None, limit: int | None = None) -> Iterator[NodeUtilization]:
        return self._iterate(NodeUtilization, "utilization/nodes", {"pool": pool}, limit)

    def workloads(
        self, *, project: str | None = None, pool: str | None = None, limit: int | None = None
    ) -> Iterator[WorkloadUtilization]:
        """Iterate over running workloads with their utilization, most allocated GPUs first."""
        return self._iterate(
            WorkloadUtilization, "utilization/workloads", {"project": project, "pool": pool}, limit
        )

    def node(self, name: str, *, span: int | None = None) -> NodeUtilizationDetail:
        return self._get(NodeUtilizationDetail, f"nodes/{name}/utilization", {"span": span})

    def workload(
        self, workload_id: str, *, span: int | None = None, run: int | None = None
    ) -> WorkloadUtilizationDetail:
        """Return one workload's utilization in the last `span` seconds until its end or, if it is running,
        until now.
        """
        return self._get(
            WorkloadUtilizationDetail, f"workloads/{workload_id}/utilization", {"span": span, "run": run}
        )
