"""Read usage, cost and utilization, and manage monthly budgets."""

from collections.abc import AsyncIterator, Mapping
from typing import Any, Literal

from berth.client.aio.resource import AsyncResource
from berth.client.models.usage import (
    Budget,
    ClusterUtilization,
    NodeUtilization,
    NodeUtilizationDetail,
    UsageReport,
    WorkloadUtilization,
    WorkloadUtilizationDetail,
)

Owner = Literal["department", "project"]
SETTABLE = ("gpu_hours", "warn_at")


class AsyncUsage(AsyncResource):
    async def report(self, **query: object) -> UsageReport:
        """Return the entire usage report. Keyword arguments are the query parameters of the REST API."""
        params = {**query, "limit": 500}
        merged: dict[str, Any] = await self._transport.get("usage", params)
        while merged["next"]:
            more = await self._transport.get("usage", {**params, "cursor": merged["next"]})
            merged = {**merged, "items": [*merged["items"], *more["items"]], "next": more["next"]}
        return UsageReport.model_validate({key: value for key, value in merged.items() if key != "next"})

    async def csv(self, **query: object) -> AsyncIterator[bytes]:
        """Stream the usage report as a CSV file."""
        async with self._transport.stream("usage", {**query, "format": "csv"}) as response:
            async for chunk in response.aiter_bytes():
                yield chunk


class AsyncBudgets(AsyncResource):
    def list(self) -> AsyncIterator[Budget]:
        return self._iterate(Budget, "budgets")

    async def get(self, kind: Owner, name: str) -> Budget:
        return await self._get(Budget, _path(kind, name))

    async def create(self, kind: Owner, name: str, values: Mapping[str, Any]) -> Budget:
        """Create a budget. Raises Conflict if the owner already has a budget."""
        return await self._put(Budget, _path(kind, name), values, "")

    async def edit(self, kind: Owner, name: str, changes: Mapping[str, Any]) -> Budget:
        """Change the given values of a budget. Raises Conflict if the budget was changed concurrently."""
        path = _path(kind, name)
        present, tag = await self._read(path)
        values = {key: present[key] for key in SETTABLE}
        return await self._put(Budget, path, {**values, **changes}, tag)

    async def delete(self, kind: Owner, name: str) -> None:
        """Delete a budget. Raises Conflict if the budget was changed concurrently."""
        await self._delete_if_unchanged(_path(kind, name))


def _path(kind: Owner, name: str) -> str:
    return f"budgets/{kind}s/{name}"


class AsyncUtilization(AsyncResource):
    async def cluster(self, *, pool: str | None = None, hours: int | None = None) -> ClusterUtilization:
        """Return the current and the hourly utilization of one pool or all pools, oldest hour first."""
        return await self._get(ClusterUtilization, "utilization", {"pool": pool, "hours": hours})

    def nodes(self, *, pool: str | None = None, limit: int | None = None) -> AsyncIterator[NodeUtilization]:
        return self._iterate(NodeUtilization, "utilization/nodes", {"pool": pool}, limit)

    def workloads(
        self, *, project: str | None = None, pool: str | None = None, limit: int | None = None
    ) -> AsyncIterator[WorkloadUtilization]:
        """Iterate over running workloads with their utilization, most allocated GPUs first."""
        return self._iterate(
            WorkloadUtilization, "utilization/workloads", {"project": project, "pool": pool}, limit
        )

    async def node(self, name: str, *, span: int | None = None) -> NodeUtilizationDetail:
        return await self._get(NodeUtilizationDetail, f"nodes/{name}/utilization", {"span": span})

    async def workload(
        self, workload_id: str, *, span: int | None = None, run: int | None = None
    ) -> WorkloadUtilizationDetail:
        """Return one workload's utilization in the last `span` seconds until its end or, if it is running,
        until now.
        """
        return await self._get(
            WorkloadUtilizationDetail, f"workloads/{workload_id}/utilization", {"span": span, "run": run}
        )
