"""Read usage, cost and utilization, and manage monthly budgets."""

from collections.abc import AsyncIterator, Mapping
from typing import Any, Literal

from berth.client.aio.transport import AsyncTransport
from berth.client.http import json_content
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


class AsyncUsage:
    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def report(self, **query: object) -> UsageReport:
        """Return the entire report. Keyword arguments are the query parameters of the REST API."""
        params = {**query, "limit": 500}
        merged: dict[str, Any] = await self._transport.get("usage", params)
        while merged["next"]:
            more = await self._transport.get("usage", {**params, "cursor": merged["next"]})
            merged = {**merged, "items": [*merged["items"], *more["items"]], "next": more["next"]}
        return UsageReport.model_validate({key: value for key, value in merged.items() if key != "next"})

    async def csv(self, **query: object) -> AsyncIterator[bytes]:
        """Stream the report as a CSV file."""
        async with self._transport.stream("usage", {**query, "format": "csv"}) as response:
            async for chunk in response.aiter_bytes():
                yield chunk


class AsyncBudgets:
    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(self) -> AsyncIterator[Budget]:
        async for item in self._transport.iterate_items("budgets"):
            yield Budget.model_validate(item)

    async def get(self, kind: Owner, name: str) -> Budget:
        return Budget.model_validate(await self._transport.get(_path(kind, name)))

    async def create(self, kind: Owner, name: str, values: Mapping[str, Any]) -> Budget:
        """Create a budget. Raises Conflict if it already exists."""
        return await self._put(_path(kind, name), values, {"If-None-Match": "*"})

    async def edit(self, kind: Owner, name: str, changes: Mapping[str, Any]) -> Budget:
        """Change the given values of a budget. Raises Conflict if it was changed concurrently."""
        path = _path(kind, name)
        current = await self._transport.execute("GET", path)
        present = json_content(current)
        values = {key: present[key] for key in SETTABLE}
        return await self._put(path, {**values, **changes}, {"If-Match": current.headers.get("ETag", "*")})

    async def delete(self, kind: Owner, name: str) -> None:
        """Delete a budget. Raises Conflict if it was changed concurrently."""
        path = _path(kind, name)
        tag = await self._transport.etag(path)
        await self._transport.execute("DELETE", path, headers={"If-Match": tag})

    async def _put(self, path: str, values: Mapping[str, Any], condition: Mapping[str, str]) -> Budget:
        return Budget.model_validate(
            json_content(await self._transport.execute("PUT", path, body=values, headers=condition))
        )


def _path(kind: Owner, name: str) -> str:
    return f"budgets/{kind}s/{name}"


class AsyncUtilization:
    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def cluster(self, *, pool: str | None = None, hours: int | None = None) -> ClusterUtilization:
        """Return the utilization of one pool or all pools, oldest hour first."""
        return ClusterUtilization.model_validate(
            await self._transport.get("utilization", {"pool": pool, "hours": hours})
        )

    async def nodes(
        self, *, pool: str | None = None, limit: int | None = None
    ) -> AsyncIterator[NodeUtilization]:
        async for item in self._transport.iterate_items("utilization/nodes", {"pool": pool}, limit):
            yield NodeUtilization.model_validate(item)

    async def workloads(
        self, *, project: str | None = None, pool: str | None = None, limit: int | None = None
    ) -> AsyncIterator[WorkloadUtilization]:
        """Iterate over running workloads, those with the most allocated GPUs first."""
        async for item in self._transport.iterate_items(
            "utilization/workloads", {"project": project, "pool": pool}, limit
        ):
            yield WorkloadUtilization.model_validate(item)

    async def node(self, name: str, *, span: int | None = None) -> NodeUtilizationDetail:
        return NodeUtilizationDetail.model_validate(
            await self._transport.get(f"nodes/{name}/utilization", {"span": span})
        )

    async def workload(
        self, workload_id: str, *, span: int | None = None, run: int | None = None
    ) -> WorkloadUtilizationDetail:
        """Return one workload's utilization in the last `span` seconds before its end or before now."""
        response = await self._transport.get(
            f"workloads/{workload_id}/utilization", {"span": span, "run": run}
        )
        return WorkloadUtilizationDetail.model_validate(response)
