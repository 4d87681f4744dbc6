"""Usage, cost and monthly budgets."""

from collections.abc import AsyncIterator, Mapping
from typing import Any, Literal

from berth.client.aio.transport import AsyncTransport
from berth.client.http import content_of
from berth.client.models.usage import Budget, ClusterUse, NodeUse, OneWorkloadUse, UsageReport, WorkloadUse

Owner = Literal["department", "project"]
SETTABLE = ("gpu_hours", "warn_at")


class AsyncUsage:
    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def report(self, **question: object) -> UsageReport:
        """Return the entire report; `question` takes the query parameters of REST."""
        params = {**question, "limit": 500}
        whole: dict[str, Any] = await self._transport.get("usage", params)
        while whole["next"]:
            more = await self._transport.get("usage", {**params, "cursor": whole["next"]})
            whole = {**whole, "items": [*whole["items"], *more["items"]], "next": more["next"]}
        return UsageReport.model_validate({key: value for key, value in whole.items() if key != "next"})

    async def csv(self, **question: object) -> AsyncIterator[bytes]:
        """Stream the report as a CSV file."""
        async with self._transport.stream("usage", {**question, "format": "csv"}) as answer:
            async for piece in answer.aiter_bytes():
                yield piece


class AsyncBudgets:
    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(self) -> AsyncIterator[Budget]:
        async for item in self._transport.pages("budgets"):
            yield Budget.model_validate(item)

    async def get(self, kind: Owner, name: str) -> Budget:
        return Budget.model_validate(await self._transport.get(_path(kind, name)))

    async def create(self, kind: Owner, name: str, values: Mapping[str, Any]) -> Budget:
        """Create a budget. Raises Conflict if it exists."""
        return await self._put(_path(kind, name), values, {"If-None-Match": "*"})

    async def edit(self, kind: Owner, name: str, changes: Mapping[str, Any]) -> Budget:
        """Change the named values of a budget. Raises Conflict if it changed at the same time."""
        path = _path(kind, name)
        current = await self._transport.ask("GET", path)
        present = content_of(current)
        values = {key: present[key] for key in SETTABLE}
        return await self._put(path, {**values, **changes}, {"If-Match": current.headers.get("ETag", "*")})

    async def delete(self, kind: Owner, name: str) -> None:
        """Delete a budget. Raises Conflict if it changed at the same time."""
        path = _path(kind, name)
        tag = await self._transport.etag(path)
        await self._transport.ask("DELETE", path, headers={"If-Match": tag})

    async def _put(self, path: str, values: Mapping[str, Any], condition: Mapping[str, str]) -> Budget:
        return Budget.model_validate(
            content_of(await self._transport.ask("PUT", path, body=values, headers=condition))
        )


def _path(kind: Owner, name: str) -> str:
    return f"budgets/{kind}s/{name}"


class AsyncUtilization:
    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def cluster(self, *, pool: str | None = None, hours: int | None = None) -> ClusterUse:
        """Return the utilization of all pools or of one, oldest hour first."""
        return ClusterUse.model_validate(
            await self._transport.get("utilization", {"pool": pool, "hours": hours})
        )

    async def nodes(self, *, pool: str | None = None, limit: int | None = None) -> AsyncIterator[NodeUse]:
        async for item in self._transport.pages("utilization/nodes", {"pool": pool}, limit):
            yield NodeUse.model_validate(item)

    async def workloads(
        self, *, project: str | None = None, pool: str | None = None, limit: int | None = None
    ) -> AsyncIterator[WorkloadUse]:
        """Iterate over running workloads, those with most allocated GPUs first."""
        async for item in self._transport.pages(
            "utilization/workloads", {"project": project, "pool": pool}, limit
        ):
            yield WorkloadUse.model_validate(item)

    async def node(self, name: str, *, span: int | None = None) -> NodeUse:
        return NodeUse.model_validate(await self._transport.get(f"nodes/{name}/utilization", {"span": span}))

    async def workload(
        self, workload_id: str, *, span: int | None = None, run: int | None = None
    ) -> OneWorkloadUse:
        """Return the utilization of one workload in the last `span` seconds before its end, or before now."""
        answer = await self._transport.get(f"workloads/{workload_id}/utilization", {"span": span, "run": run})
        return OneWorkloadUse.model_validate(answer)
