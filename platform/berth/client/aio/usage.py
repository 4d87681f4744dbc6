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
        """The same as a CSV file, as it arrives."""
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
        """Refused with Conflict when there is one already."""
        return await self._put(_path(kind, name), values, {"If-None-Match": "*"})

    async def edit(self, kind: Owner, name: str, changes: Mapping[str, Any]) -> Budget:
        """Changes some values and keeps the others; refused with Conflict when somebody was faster."""
        path = _path(kind, name)
        found = await self._transport.ask("GET", path)
        present = content_of(found)
        values = {key: present[key] for key in SETTABLE}
        return await self._put(path, {**values, **changes}, {"If-Match": found.headers.get("ETag", "*")})

    async def delete(self, kind: Owner, name: str) -> None:
        """Refused with Conflict when somebody changed it meanwhile."""
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
        """All pools, or one; the latest hours last."""
        return ClusterUse.model_validate(
            await self._transport.get("utilization", {"pool": pool, "hours": hours})
        )

    async def nodes(self, *, pool: str | None = None, limit: int | None = None) -> AsyncIterator[NodeUse]:
        async for item in self._transport.pages("utilization/nodes", {"pool": pool}, limit):
            yield NodeUse.model_validate(item)

    async def workloads(
        self, *, project: str | None = None, pool: str | None = None, limit: int | None = None
    ) -> AsyncIterator[WorkloadUse]:
        """Those that run, whoever holds most GPUs first."""
        async for item in self._transport.pages(
            "utilization/workloads", {"project": project, "pool": pool}, limit
        ):
            yield WorkloadUse.model_validate(item)

    async def node(self, name: str, *, span: int | None = None) -> NodeUse:
        return NodeUse.model_validate(await self._transport.get(f"nodes/{name}/utilization", {"span": span}))

    async def workload(
        self, workload_id: str, *, span: int | None = None, run: int | None = None
    ) -> OneWorkloadUse:
        """`span`: so many seconds back from its end, or from now."""
        told = await self._transport.get(f"workloads/{workload_id}/utilization", {"span": span, "run": run})
        return OneWorkloadUse.model_validate(told)
