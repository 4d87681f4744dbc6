"""Departments, projects and quotas, with guarded quota edits."""

from collections.abc import AsyncIterator, Mapping
from typing import Any, Literal
from urllib.parse import quote

from berth.client.aio.transport import AsyncTransport
from berth.client.http import content_of
from berth.client.models.tenants import (
    Department,
    Project,
    Quota,
    QuotaChange,
    QuotaImpact,
    QuotaSet,
    ShareTrace,
)

Owner = Literal["department", "project"]
SETTABLE = ("gpu", "cpu", "memory_mib", "limit", "weight", "over_quota", "rank")


class AsyncDepartments:
    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(self) -> AsyncIterator[Department]:
        async for item in self._transport.pages("departments"):
            yield Department.model_validate(item)

    async def get(self, name: str) -> Department:
        return Department.model_validate(await self._transport.get(f"departments/{quote(name, safe='')}"))

    async def create(self, name: str, **values: Any) -> Department:
        """Values: title, rank, reclaim_min_runtime, preempt_min_runtime."""
        return Department.model_validate(await self._transport.post("departments", {"name": name, **values}))

    async def edit(self, name: str, changes: Mapping[str, Any]) -> Department:
        path = f"departments/{quote(name, safe='')}"
        return Department.model_validate(content_of(await self._transport.ask("PATCH", path, body=changes)))

    async def delete(self, name: str) -> None:
        """Delete a department. Raises Conflict while it has projects."""
        await self._transport.ask("DELETE", f"departments/{quote(name, safe='')}")


class AsyncProjects:
    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(self, department: str | None = None) -> AsyncIterator[Project]:
        async for item in self._transport.pages("projects", {"department": department}):
            yield Project.model_validate(item)

    async def get(self, name: str) -> Project:
        return Project.model_validate(await self._transport.get(f"projects/{quote(name, safe='')}"))

    async def create(self, name: str, department: str, **values: Any) -> Project:
        """Values: title, rank, reclaim_min_runtime, preempt_min_runtime."""
        body = {"name": name, "department": department, **values}
        return Project.model_validate(await self._transport.post("projects", body))

    async def edit(self, name: str, changes: Mapping[str, Any]) -> Project:
        path = f"projects/{quote(name, safe='')}"
        return Project.model_validate(content_of(await self._transport.ask("PATCH", path, body=changes)))

    async def delete(self, name: str) -> None:
        """Delete a project. Raises Conflict while it has workloads."""
        await self._transport.ask("DELETE", f"projects/{quote(name, safe='')}")


class AsyncQuotas:
    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(
        self, *, pool: str | None = None, department: str | None = None, project: str | None = None
    ) -> AsyncIterator[Quota]:
        params = {"pool": pool, "department": department, "project": project}
        async for item in self._transport.pages("quotas", params):
            yield Quota.model_validate(item)

    async def get(self, kind: Owner, name: str, pool: str) -> Quota:
        return Quota.model_validate(await self._transport.get(_path(kind, name, pool)))

    async def create(self, kind: Owner, name: str, pool: str, values: Mapping[str, Any]) -> QuotaSet:
        """Create a quota. Raises Conflict if it exists."""
        return await self._put(_path(kind, name, pool), values, {"If-None-Match": "*"})

    async def edit(self, kind: Owner, name: str, pool: str, changes: Mapping[str, Any]) -> QuotaSet:
        """Change the named values of a quota. Raises Conflict if it changed at the same time."""
        path = _path(kind, name, pool)
        current = await self._transport.ask("GET", path)
        present = content_of(current)
        values = {key: present[key] for key in SETTABLE if key in present}
        if "limit" in changes:
            changes = {**changes, "limit": {**(values.get("limit") or {}), **changes["limit"]}}
        return await self._put(path, {**values, **changes}, {"If-Match": current.headers.get("ETag", "*")})

    async def share(self, kind: Owner, name: str, pool: str) -> ShareTrace:
        """Explain how the current fair share is computed."""
        return ShareTrace.model_validate(await self._transport.get(f"{_path(kind, name, pool)}/share"))

    async def preview(self, draft: Mapping[str, Any]) -> QuotaImpact:
        """Return the effects of a draft (`changes`, optionally `comment`). Nothing is stored."""
        return QuotaImpact.model_validate(await self._transport.post("quotas/preview", draft))

    async def apply(self, draft: Mapping[str, Any], tag: str | None = None) -> QuotaChange | None:
        """Apply a draft, all changes or none; return None if no quota differs.

        With the `tag` of a preview, raises Conflict if a quota has changed since the preview.
        """
        match = "*" if tag is None else f'"{tag}"'
        answer = await self._transport.post("quotas/apply", draft, condition={"If-Match": match})
        change = answer["change"]
        return None if change is None else QuotaChange.model_validate(change)

    async def changes(self, *, limit: int | None = None) -> AsyncIterator[QuotaChange]:
        """Iterate over changes, newest first."""
        async for item in self._transport.pages("quotas/changes", limit=limit):
            yield QuotaChange.model_validate(item)

    async def revert(self, change: int) -> QuotaChange:
        """Revert a change. Raises Conflict if one of its quotas has changed since."""
        return QuotaChange.model_validate(await self._transport.post(f"quotas/changes/{change}/revert"))

    async def _put(self, path: str, values: Mapping[str, Any], condition: Mapping[str, str]) -> QuotaSet:
        return QuotaSet.model_validate(
            content_of(await self._transport.ask("PUT", path, body=values, headers=condition))
        )


def _path(kind: Owner, name: str, pool: str) -> str:
    return f"quotas/{kind}s/{name}/{pool}"
